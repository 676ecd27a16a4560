"""A classifier for tests: it does what the text tells it to."""

import os
import re
import signal
import time


def classify(text):
    wait = re.search(r"wait (\d+) ms", text)
    if wait:
        time.sleep(int(wait[1]) / 1000)
    if "break down" in text:
        raise ValueError("out of order")
    if "drop dead" in text:
        os.kill(os.getpid(), signal.SIGKILL)
    return [{"label": "INJECTION", "score": 0.99 if "ignore" in text.lower() else 0.01}]
