"""Presidio's real analyzer behind the REST shape of its own app, which is in no wheel. Prints its port.

spaCy's blank model knows no names of people; Presidio's other recognizers need none.
"""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import spacy
import tldextract
from presidio_analyzer import AnalyzerEngine, AnalyzerRequest, BatchAnalyzerEngine
from presidio_analyzer.nlp_engine import SpacyNlpEngine

tldextract.extract = tldextract.TLDExtract(suffix_list_urls=())  # The list that it brings, not the web's.
nlp = SpacyNlpEngine()
nlp.nlp = {"en": spacy.blank("en")}
engine = BatchAnalyzerEngine(AnalyzerEngine(nlp_engine=nlp, supported_languages=["en"]))


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        try:
            asked = AnalyzerRequest(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            several = isinstance(asked.text, list)
            options = {"entities": asked.entities, "score_threshold": asked.score_threshold}
            found = list(engine.analyze_iterator(asked.text if several else [asked.text], asked.language, **options))
            self.answer(200, found if several else found[0])
        except Exception as error:
            self.answer(500, {"error": str(error)})

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body, default=lambda one: one.to_dict()).encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
