#!/usr/bin/env python3
import http.server, json, os, sys
home = os.environ["HERMES_HOME"]
if os.path.exists(os.path.join(home, "fail")):
    sys.exit("asked to fail")
env = dict(line.strip().split("=", 1) for line in open(os.path.join(home, ".env")) if "=" in line)
answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "hermes-agent", "choices": [
    {"index": 0, "message": {"role": "assistant", "content": "still here"}, "finish_reason": "stop"}]}
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def reply(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self): self.reply(200, {"status": "ok"})
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        allowed = self.headers["authorization"] == "Bearer " + env["API_SERVER_KEY"]
        self.reply(200, answer) if allowed else self.reply(401, {"error": {"message": "Invalid API key"}})
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer.daemon_threads = True
http.server.ThreadingHTTPServer(("127.0.0.1", int(env["API_SERVER_PORT"])), Handler).serve_forever()
