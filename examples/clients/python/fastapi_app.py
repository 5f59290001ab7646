"""A FastAPI app with limits: uvicorn fastapi_app:app --port 8000"""

import os

from fastapi import Depends, FastAPI

from fluxgate import Client
from fluxgate.asgi import RateLimitMiddleware
from fluxgate.fastapi import RateLimit

fg = Client(os.environ.get("FLUXGATE_URL", "http://127.0.0.1:8081"))
app = FastAPI()
# Every request. The user is in X-User-Id, unless `user=` says otherwise.
app.add_middleware(RateLimitMiddleware, client=fg, rule_set="pages", exclude=["/health"])


@app.get("/")
async def page():
    return "hello"


@app.get("/health")
async def health():
    return "ok"


# This route only, in addition.
@app.post("/jobs", dependencies=[Depends(RateLimit(fg, "jobs"))])
async def start_job():
    return "started"
