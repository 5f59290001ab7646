"""The programs in `examples` and the README, followed as a newcomer follows them."""

import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

from .service import HOST, ROOT, Service, free_port

EXAMPLES = ROOT / "examples/clients/python"
README = (ROOT / "clients/python/README.md").read_text()


def config():
    """Returns the config of all examples, with a free port for the API only."""
    text = (ROOT / "examples/fluxgate.yaml").read_text()
    text, count = re.subn(r"(?m)^listen:.*$", 'listen: { api: "${API}" }', text)
    assert count == 1
    # No units come back while a test runs, however long it takes.
    return text.replace("window: 1m", "window: 1h").replace("window: 6s", "window: 1h")


def with_time(program):
    """Returns a program whose client waits for 10 s: the apps fail open after 100 ms otherwise."""
    program, count = re.subn(r"deadline=[\d.]+", "deadline=10", program)
    program, others = re.subn(
        r"\bClient\((URL|\"[^\"]*\"|os\..*\))\)", r"Client(\1, deadline=10)", program
    )
    assert count + others, "the program has no client"
    return program


class App:
    """A server in another process."""

    def __init__(self, command, folder, port, **environment):
        environment = {**os.environ, **environment}
        null = subprocess.DEVNULL
        command = [sys.executable, "-m", *command]
        self._process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=null, stderr=null
        )
        self._port = port

    def status(self, path="/", method="GET", user="ann"):
        url = f"http://{HOST}:{self._port}{path}"
        request = urllib.request.Request(url, method=method, headers={"X-User-Id": user})
        end = time.monotonic() + 300
        while True:
            try:
                with urllib.request.urlopen(request, timeout=30) as response:
                    return response.status, response.headers
            except urllib.error.HTTPError as error:
                with error:
                    return error.status, error.headers
            except urllib.error.URLError:
                assert time.monotonic() < end, "the app does not start"
                assert self._process.poll() is None, "the app has ended"
                time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # A server with workers ends them.
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Examples(unittest.TestCase):
    def setUp(self):
        """Copies the examples, with time for their calls."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name in ("calls.py", "fastapi_app.py", "flask_app.py", "jobs.py"):
            (self.folder / name).write_text(with_time((EXAMPLES / name).read_text()))

    def assert_limited(self, app, *request):
        statuses = [app.status(*request)[0] for _ in range(4)]
        self.assertEqual(statuses, [200] * 3 + [429])

    def check_app(self, *command):
        port = free_port()
        command = [*command, "--host", HOST, "--port", str(port)]
        with Service(config()) as service:
            with App(command, self.folder, port, FLUXGATE_URL=service.url) as app:
                self.assert_limited(app)
                self.assertEqual(app.status("/health")[0], 200)
                status, headers = app.status("/jobs", "POST", user="bob")
                self.assertEqual(status, 200)
                self.assertEqual(headers["RateLimit-Policy"].count("per-user/burst"), 2)

    def test_fastapi(self):
        self.check_app("uvicorn", "fastapi_app:app")

    def test_flask(self):
        self.check_app("flask", "--app", "flask_app", "run")

    def test_flask_behind_a_server_that_forks(self):
        # The client is made, and asks, before the workers are.
        program = "import flask_app\nflask_app.fg.peek('pages')\napp = flask_app.app\n"
        port = free_port()
        (self.folder / "preloaded.py").write_text(program)
        command = ["gunicorn", "--preload", "--workers", "3", "--bind", f"{HOST}:{port}"]
        with Service(config()) as service:
            url = service.url
            with App([*command, "preloaded:app"], self.folder, port, FLUXGATE_URL=url) as app:
                self.assert_limited(app)
                users = {app.status(user=f"other-{at}")[0] for at in range(40)}
                self.assertEqual(users, {200})

    def run_jobs(self, url, user, jobs):
        return self.run_program("jobs.py", url, user, str(jobs)).splitlines()

    def run_program(self, name, *args):
        command = [sys.executable, str(self.folder / name), *args]
        run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
        return run.stdout

    def test_jobs_are_done_as_fast_as_allowed(self):
        with Service(config().replace("capacity: 3, window: 1h", "capacity: 3, window: 3s")) as it:
            lines = self.run_jobs(it.url, "ann", 4)
        self.assertEqual(lines[0], "job 1: done, 2 left")
        done = [line.split(":")[0] for line in lines if ": done, " in line]
        self.assertEqual(done, ["job 1", "job 2", "job 3", "job 4"])

    def test_jobs_return_their_slots(self):
        rules = """
        - { id: running, scope: per_user, algorithm: concurrency, bands: [ { capacity: 1 } ] }
        - { id: even, scope: per_user, algorithm: leaky_bucket, shape: true, bands: [ 9/3s ] }
        """
        text = f'listen: {{ api: "${{API}}" }}\nrule_sets:\n  jobs:\n    rules: {rules}'
        with Service(text) as service:
            begin = time.monotonic()
            lines = self.run_jobs(service.url, "ann", 3)
            # One job in a third of a second.
            self.assertGreater(time.monotonic() - begin, 0.6)
            self.assertEqual(lines, [f"job {job}: done, 0 left" for job in (1, 2, 3)])
            self.assertEqual(service.metric("fluxgate_slots_held"), 0)

    def test_jobs_fail_open(self):
        lines = self.run_jobs("http://127.0.0.1:1", "ann", 1)
        self.assertEqual(len(lines), 1)
        self.assertTrue(lines[0].startswith("job 1: done, FluxGate unavailable: "), lines)

    def test_calls(self):
        with Service(config()) as service:
            output = self.run_program("calls.py", service.url)
        self.assertEqual(output, "2 left\nallowed 2\nallowed 1\nsent\nallowed 2\n")


class Readme(unittest.TestCase):
    def setUp(self):
        self.blocks = re.findall(r"```(\w+)\n(.*?)```", README, re.S)

    def check_program(self, program, *request):
        """Runs a program of the README with its rules."""
        rules = next(text for kind, text in self.blocks if kind == "yaml")
        rules = rules.replace("127.0.0.1:8081", "${API}").replace("3/m", "3/h")
        port = free_port()
        with Service(rules) as service, tempfile.TemporaryDirectory() as folder:
            program = program.replace("http://127.0.0.1:8081", service.url)
            Path(folder, "app.py").write_text(with_time(program))
            command = ["uvicorn", "app:app", "--host", HOST, "--port", str(port)]
            with App(command, folder, port) as app:
                Examples.assert_limited(self, app, *request)

    def test_in_five_minutes(self):
        commands = [text.strip() for kind, text in self.blocks if kind == "sh"]
        self.assertIn("venv/bin/uvicorn app:app", commands)
        self.assertTrue(any(text.startswith("for i in 1 2 3 4; do curl") for text in commands))
        self.check_program(next(text for kind, text in self.blocks if kind == "python"))

    def test_only_one_route(self):
        [program] = [text for _, text in self.blocks if "@app.post" in text]
        self.check_program(program, "/exports", "POST")

    def test_every_snippet_is_python(self):
        for kind, text in re.findall(r"```(\w+)\n(.*?)```", README, re.S):
            if kind == "python":
                compile(text, "README", "exec")

    def test_every_option_and_exception_is_listed(self):
        import inspect

        import fluxgate
        from fluxgate._filter import Filter

        for function in (Filter.__init__, fluxgate.Client.__init__):
            for name in list(inspect.signature(function).parameters)[1:]:
                if name != "url":
                    self.assertIn(f"`{name}`", README)
        for name in ("Denied", "Unavailable", "InvalidRequest", "HoldEnded"):
            self.assertIn(f"| `{name}` |", README)


class Signatures(unittest.TestCase):
    def test_both_clients_have_the_same_calls(self):
        import inspect

        from fluxgate import AsyncClient, Client

        names = [name for name in vars(Client) if not name.startswith("_")]
        self.assertGreater(len(names), 9)
        for name in ("__init__", *names):
            sync, other = getattr(Client, name), getattr(AsyncClient, name)
            self.assertEqual(
                list(inspect.signature(sync).parameters), list(inspect.signature(other).parameters)
            )

    def test_names_that_do_not_exist_are_refused(self):
        from fluxgate import AsyncClient, Client
        from fluxgate.asgi import RateLimitMiddleware as Asgi
        from fluxgate.fastapi import RateLimit as ForFastApi
        from fluxgate.flask import RateLimit as ForFlask
        from fluxgate.wsgi import RateLimitMiddleware as Wsgi

        fg = Client()
        for make in (
            lambda: Asgi(None, fg, "api", users=None),
            lambda: Wsgi(None, fg, "api", users=None),
            lambda: ForFastApi(fg, "api", users=None),
            lambda: ForFlask(None, fg, "api", users=None),
        ):
            with self.assertRaisesRegex(TypeError, "users"):
                make()
        for call in (fg.check, fg.peek, fg.wait, fg.hold, AsyncClient().hold):
            with self.assertRaisesRegex(TypeError, "usr"):
                call("api", usr="ann")


if __name__ == "__main__":
    unittest.main()
