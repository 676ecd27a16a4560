"""A classifier for tests: it does what the text tells it to."""

import os
import re
import signal
import time


def classify(text):
    # As models do.
    text = text[:1000]
    wait = re.search(r"wait (\d+) ms", text)
    if wait:
        time.sleep(int(wait[1]) / 1000)
    if "break down" in text:
        raise ValueError("out of order")
    if "drop dead" in text:
        os.kill(os.getpid(), signal.SIGKILL)
    return [{"label": "INJECTION", "score": 0.99 if "ignore" in text.lower() else 0.01}]


class Known:
    """A pipeline that says which labels it has."""

    class model:
        class config:
            id2label = {0: "SAFE", 1: "INJECTION"}

    def __call__(self, text):
        return classify(text)


known = Known()
