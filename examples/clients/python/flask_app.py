"""A Flask app with limits: flask --app flask_app run --port 8000"""

import os

from flask import Flask

from fluxgate import Client
from fluxgate.flask import RateLimit

fg = Client(os.environ.get("FLUXGATE_URL", "http://127.0.0.1:8081"))
app = Flask(__name__)
# Every request. The user is in X-User-Id, unless `user=` says otherwise.
limits = RateLimit(app, client=fg, rule_set="pages", exclude=["/health"])


@app.get("/")
def page():
    return "hello"


@app.get("/health")
def health():
    return "ok"


# This view only, in addition.
@app.post("/jobs")
@limits.limit("jobs")
def start_job():
    return "started"
