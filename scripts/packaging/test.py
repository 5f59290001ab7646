"""Tests of the packages in dist/: scripts/test packages.

Each is installed or unpacked into a directory of its own, started there, and asked.
"""

import contextlib
import hashlib
import itertools
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import kubernetes_validate
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from jsonschema.validators import validator_for

PROJECT = pathlib.Path(__file__).resolve().parents[2]
DIST = PROJECT / "dist"
STATIC = pathlib.Path(os.environ["FLUXGATE_STATIC"])
HELM = os.environ["FLUXGATE_HELM"]
IS_ROOT = os.geteuid() == 0
KUBERNETES = "1.37"
WAIT = 60

RULES = """
rule_sets:
  api-limits:
    rules:
      - { id: per-user, scope: per_user, algorithm: fixed_window, bands: [ { capacity: 2, window: 30d } ] }
"""


def run(*command, check=True, **options):
    """Runs a command, which must succeed, and returns its output."""
    command = [str(word) for word in command]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, **options
    )
    if check and done.returncode != 0:
        raise AssertionError(f"{command} exits with {done.returncode}:\n{done.stdout}")
    return done.stdout


def version():
    with open(PROJECT / "Cargo.toml") as file:
        return re.search(r'^version = "(.*)"', file.read(), re.MULTILINE).group(1)


def only(pattern):
    """Returns the one file in dist/ whose name matches."""
    (found,) = DIST.glob(pattern)
    return found


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def check(port, user="ann"):
    """Asks for a decision, and returns the status that a gateway would send."""
    body = json.dumps({"rule_set": "api-limits", "user": user, "path": "/api/x"}).encode()
    url = f"http://127.0.0.1:{port}/v1/check?status=true"
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=WAIT) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


@contextlib.contextmanager
def started(command, is_healthy, **options):
    """Runs a service until the block ends, which begins when it is healthy."""
    log = tempfile.TemporaryFile("w+")
    process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log, **options)
    try:
        end = time.monotonic() + WAIT
        while not is_healthy():
            if process.poll() is not None or time.monotonic() > end:
                log.seek(0)
                raise AssertionError(f"{command} is not healthy:\n{log.read()}")
            time.sleep(0.2)
        yield process
    finally:
        process.terminate()
        process.wait(WAIT)
        log.close()


class TestCase(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="fluxgate-packages-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def write(self, name, text):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


class Release(TestCase):
    def test_checksums_name_every_file(self):
        lines = (DIST / "SHA256SUMS").read_text().splitlines()
        sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
        files = {path.name for path in DIST.iterdir()} - {"SHA256SUMS"}
        self.assertEqual(set(sums), files)
        self.assertEqual(len(files), 5)
        for name, digest in sums.items():
            self.assertEqual(hashlib.sha256((DIST / name).read_bytes()).hexdigest(), digest, name)
            self.assertIn(version(), name)

    def test_the_same_sources_give_the_same_files(self):
        checkout = self.dir / "checkout"
        ignore = shutil.ignore_patterns("target", "dist", "node_modules", ".git")
        shutil.copytree(PROJECT, checkout, ignore=ignore, symlinks=True)
        times = {"SOURCE_DATE_EPOCH": epoch(), "FLUXGATE_STATIC": str(STATIC)}
        run(checkout / "scripts/package", env=os.environ | times, umask=0o077)
        again = (checkout / "dist/SHA256SUMS").read_text()
        self.assertEqual(again, (DIST / "SHA256SUMS").read_text())


def epoch():
    """Returns the time that files in the packages have."""
    listed = run("tar", "-tvzf", only("*-linux-musl.tar.gz"), "--full-time", "--utc")
    (stamp,) = {" ".join(line.split()[3:5]) for line in listed.splitlines()}
    return run("date", "--utc", "--date", stamp, "+%s").strip()


class Binary(TestCase):
    def setUp(self):
        super().setUp()
        run("tar", "-xzf", only("*-linux-musl.tar.gz"), "-C", self.dir)
        (self.files,) = self.dir.iterdir()
        self.program = self.files / "bin/fluxgate"

    def test_it_needs_no_library(self):
        self.assertIn("statically linked", run("ldd", self.program, check=False))
        with open(self.program, "rb") as file:
            self.assertNotIn(b"/ld-musl", file.read())
        self.assertEqual(run(self.program, "--version").strip(), f"fluxgate {version()}")

    def test_it_has_what_packages_have(self):
        self.assertIn(b"<jemalloc>", self.program.read_bytes())
        config = "rules_from: { mongodb: { url: 'mongodb://127.0.0.1' } }\nlisten: { api: ':8081' }\n"
        run(self.program, "validate", self.write("mongodb.yaml", config))

    def test_it_decides_and_is_healthy_until_it_ends(self):
        port = free_port()
        config = self.write("fluxgate.yaml", f"listen: {{ api: '127.0.0.1:{port}' }}\n{RULES}")
        health = [self.program, "health", config, "--timeout", "20s"]
        healthy = lambda: subprocess.run(health, capture_output=True).returncode == 0
        with started([self.program, "run", "--config", config], healthy) as process:
            self.assertEqual([check(port) for _ in range(3)], [200, 200, 429])
            process.terminate()
            self.assertEqual(process.wait(WAIT), 0)
        self.assertFalse(healthy())

    def test_the_certificate_authorities_of_the_system_are_found(self):
        # Nothing listens there: reading them comes first.
        port = free_port()
        printed = run(self.program, "health", "--server", f"https://127.0.0.1:{port}", check=False)
        self.assertIn("cannot connect: Connection refused", printed)
        nothing = os.environ | {"SSL_CERT_FILE": str(self.write("none.pem", "")), "SSL_CERT_DIR": "/nowhere"}
        printed = run(self.program, "health", "--server", "https://127.0.0.1:1", check=False, env=nothing)
        self.assertIn("no trusted certificate authorities", printed)

    def test_shells_accept_the_completions(self):
        completions = self.files / "completions"
        run("bash", "-n", completions / "fluxgate.bash")
        run("zsh", "-n", completions / "_fluxgate")
        run("fish", "--no-execute", completions / "fluxgate.fish")
        offered = run("fish", "--command", "source $argv[1]; complete --do-complete 'fluxgate hea'", completions / "fluxgate.fish")
        self.assertIn("health", offered)

    def test_man_formats_every_page_without_a_warning(self):
        pages = sorted((self.files / "man").iterdir())
        self.assertGreater(len(pages), 20)
        for page in pages:
            command = ["man", "--warnings=w", "--local-file", page]
            done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"MANWIDTH": "80"})
            self.assertEqual((done.returncode, done.stderr), (0, ""), page)
            self.assertIn("SYNOPSIS", done.stdout)


class DebianPackage(TestCase):
    """Installs the package into a root of its own. Its programs run with that as their root."""

    def setUp(self):
        super().setUp()
        self.root = self.dir / "root"
        for folder in ["info", "updates", "triggers"]:
            (self.root / "var/lib/dpkg" / folder).mkdir(parents=True)
        (self.root / "var/lib/dpkg/status").touch()
        self.unit = self.root / "usr/lib/systemd/system/fluxgate.service"

    def dpkg(self, *arguments):
        command = [] if IS_ROOT else ["fakeroot"]
        # Scripts run outside of the root, where a shell is; they find it in DPKG_ROOT.
        command += ["dpkg", f"--root={self.root}", f"--log={self.dir}/log"]
        command += ["--force-script-chrootless", "--force-depends", "--force-not-root"]
        return run(*command, *arguments, env=os.environ | {"DPKG_MAINTSCRIPT_DEBUG": "0"})

    def install(self):
        self.dpkg("--install", "--force-confold", only("*.deb"))

    def inside(self, *command):
        """Returns a command that runs with the root of the package."""
        return [*(["unshare", "--map-root-user"] if not IS_ROOT else []), "chroot", self.root, *command]

    def test_its_description_is_complete(self):
        fields = yaml.safe_load(run("dpkg-deb", "--field", only("*.deb")).replace(" :", ":"))
        self.assertEqual(fields["Package"], "fluxgate")
        self.assertEqual(str(fields["Version"]), version())
        self.assertEqual(fields["Architecture"], "amd64")
        listed = run("dpkg-deb", "--contents", only("*.deb"))
        for line in listed.splitlines():
            mode, owner, *_, path = line.split()
            self.assertEqual(owner, "root/root", line)
            expected = "drwxr-xr-x" if path.endswith("/") else "-rwxr-xr-x" if path == "./usr/bin/fluxgate" else "-rw-r--r--"
            self.assertEqual(mode, expected, line)

    def test_the_unit_is_enabled_and_valid(self):
        self.install()
        wanted = self.root / "etc/systemd/system/multi-user.target.wants/fluxgate.service"
        self.assertTrue(wanted.is_symlink())
        # What a system has besides.
        for name in ["sysinit", "basic", "shutdown", "network-online", "multi-user"]:
            self.write(f"root/usr/lib/systemd/system/{name}.target", "[Unit]\n")
        self.write("root/bin/kill", "").chmod(0o755)
        printed = run("systemd-analyze", "verify", f"--root={self.root}", "fluxgate.service")
        self.assertEqual(printed, "")
        run("systemd-analyze", "security", "--offline=true", "--threshold=15", "--no-pager", f"--root={self.root}", "fluxgate.service")
        (start,) = re.findall(r"^ExecStart=(.*)$", self.unit.read_text(), re.MULTILINE)
        for path in re.findall(r"/\S+", start):
            self.assertTrue((self.root / path[1:]).is_file(), path)

    def test_the_service_of_the_unit_runs_with_the_installed_config(self):
        self.install()
        (start,) = re.findall(r"^ExecStart=(.*)$", self.unit.read_text(), re.MULTILINE)
        port = free_port()
        # Other ports than those of a service that may run on this machine.
        options = [f"listen.api=127.0.0.1:{port}", "listen.grpc=null", "listen.resp=null"]
        options = list(itertools.chain.from_iterable(("--set", option) for option in options))
        health = self.inside("/usr/bin/fluxgate", "health", "/etc/fluxgate/fluxgate.yaml", *options)
        healthy = lambda: subprocess.run(health, capture_output=True).returncode == 0
        with started(self.inside(*start.split(), *options), healthy):
            # Ten at once; units return every 100 ms.
            statuses = [check(port) for _ in range(50)]
        self.assertEqual(statuses[:10], [200] * 10)
        self.assertIn(429, statuses)

    def test_an_upgrade_keeps_changes_and_a_purge_leaves_nothing(self):
        self.install()
        config = self.root / "etc/fluxgate/fluxgate.yaml"
        config.write_text(config.read_text() + "# mine\n")
        self.install()
        self.assertIn("# mine", config.read_text())
        self.dpkg("--remove", "fluxgate")
        self.assertTrue(config.is_file())
        self.assertFalse(self.unit.exists())
        self.dpkg("--purge", "fluxgate")
        left = [path for path in self.root.rglob("*") if not path.is_dir() and "dpkg" not in path.parts]
        self.assertEqual(left, [])


class Image(TestCase):
    def setUp(self):
        super().setUp()
        self.archive = only("*-image-amd64.tar")
        store = ["--root", self.dir / "storage", "--runroot", self.dir / "run", "--storage-driver", "vfs"]
        self.buildah = ["buildah", *store]

    def pull(self, transport):
        return run(*self.buildah, "from", "--name", transport, f"{transport}:{self.archive}").strip()

    def test_every_tool_reads_the_same_image(self):
        described = []
        for transport in ["docker-archive", "oci-archive"]:
            self.pull(transport)
            text = run(*self.buildah, "inspect", "--type", "container", transport)
            inspected = json.loads(text)
            described.append(inspected["OCIv1"]["config"])
            self.assertEqual(inspected["OCIv1"]["rootfs"]["type"], "layers")
        self.assertEqual(described[0], described[1])
        self.assertEqual(described[0]["User"], "65532:65532")
        self.assertEqual(described[0]["Entrypoint"], ["/usr/local/bin/fluxgate"])

    def test_it_holds_nothing_but_the_program(self):
        run("tar", "-xf", self.archive, "-C", self.dir)
        config = self.config()
        layer = self.dir / "blobs/sha256" / config["rootfs"]["diff_ids"][0].removeprefix("sha256:")
        listed = run("tar", "-tvf", layer).splitlines()
        files = [line.split()[-1] for line in listed if not line.startswith("d")]
        self.assertEqual(
            sorted(files),
            ["etc/group", "etc/passwd", "etc/ssl/certs/ca-certificates.crt", "usr/local/bin/fluxgate"],
        )
        self.assertFalse(any(re.match(r"^..w...w|^........w|^...s", line) for line in listed))

    def config(self):
        (saved,) = json.loads((self.dir / "manifest.json").read_text())
        return json.loads((self.dir / saved["Config"]).read_text())

    def test_it_runs_without_privileges_and_its_health_check_says_so(self):
        run("tar", "-xf", self.archive, "-C", self.dir, "manifest.json", "blobs")
        _, *health = self.config()["config"]["Healthcheck"]["Test"]
        self.pull("oci-archive")
        port = free_port()
        config = self.write("config/fluxgate.yaml", f"listen: {{ api: '0.0.0.0:{port}' }}\n{RULES}")
        for path in [self.dir, config.parent]:
            path.chmod(0o755)
        config.chmod(0o644)
        # It shares the network of this machine, and nothing else.
        start = [*self.buildah, "run", "--isolation", "chroot", "--volume", f"{config.parent}:/etc/fluxgate:ro", "oci-archive"]
        healthy = lambda: subprocess.run([str(it) for it in [*start, *health]], capture_output=True).returncode == 0
        self.assertFalse(healthy())
        begun = time.time()
        run_it = [*start, "/usr/local/bin/fluxgate", "run", "--config", "/etc/fluxgate/fluxgate.yaml"]
        with started(run_it, healthy, start_new_session=True) as process:
            self.assertEqual([check(port) for _ in range(3)], [200, 200, 429])
            pid = self.pid_of(process)
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            self.assertRegex(status, r"(?m)^Uid:\t65532\t65532\t65532\t65532$")
            os.kill(pid, 15)
            self.assertEqual(process.wait(WAIT), 0)
        root = pathlib.Path(run(*self.buildah, "mount", "oci-archive").strip())
        written = [str(path) for path in root.rglob("*") if path.is_file() and path.lstat().st_mtime > begun]
        # buildah brings these itself.
        self.assertEqual([path for path in written if "/etc/" not in path and "/run/" not in path], [])

    def pid_of(self, process):
        """Returns the service in the container of buildah: they have one session."""
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if words[0] == b"/usr/local/bin/fluxgate" and os.getsid(int(entry.name)) == process.pid:
                    return int(entry.name)
        raise AssertionError("the container does not run")


class BillOfMaterials(TestCase):
    def setUp(self):
        super().setUp()
        self.text = only("*.cdx.json").read_text()
        self.document = json.loads(self.text)
        self.components = {it["name"]: it for it in self.document["components"]}

    def test_it_follows_the_schema_of_cyclonedx(self):
        error = JsonStrictValidator(SchemaVersion.V1_5).validate_str(self.text)
        self.assertIsNone(error)

    def test_it_lists_what_is_linked_and_nothing_else(self):
        for name in ["ring", "tokio", "redis", "mongodb", "tikv-jemalloc-sys", "fluxgate-core"]:
            self.assertIn(name, self.components)
        # Tests, macros, other systems.
        for name in ["proptest", "fluxgate-testkit", "serde_derive", "syn", "windows-sys", "cc"]:
            self.assertNotIn(name, self.components)
        ours = {name for name in self.components if name.startswith("fluxgate")}
        for name, component in self.components.items():
            self.assertIn("licenses", component, name)
            self.assertEqual(name in ours, "hashes" not in component, name)
        references = {it["bom-ref"] for it in self.document["components"]}
        references.add(self.document["metadata"]["component"]["bom-ref"])
        self.assertEqual({it["ref"] for it in self.document["dependencies"]}, references)
        for dependency in self.document["dependencies"]:
            self.assertLessEqual(set(dependency["dependsOn"]), references)


class Chart(TestCase):
    ROUTES = {
        "filters": {"main": {"rule_set": "api-limits"}},
        "gateway": {"routes": [{"id": "all", "upstreams": ["echo"], "filters": ["main"]}]},
        # Helm reads numbers as floats.
        "history": {"denials": 1000000},
    }
    # Each choice is combined with each of the others.
    CHOICES = [
        [{}, {"store": {"type": "redis"}}, {"store": {"type": "redis", "redis": {"username": "u", "settings": {"deadline": "20ms"}}}}],
        [{}, {"gateway": {"enabled": True}, "config": ROUTES}],
        [{}, {"tls": {"secret": "tls", "listeners": ["gateway", "api", "grpc", "resp"]}}, {"tls": {"secret": "tls", "listeners": ["gateway"]}}],
        [{}, {"rules": {"source": "stored"}}, {"rules": {"existingConfigMap": "mine"}}, {"rules": {"source": "config"}}],
        [{}, {"secrets": {"existing": "mine", "entries": ["redis-password", "hash-secret", "admin-tokens"]}}, {"secrets": {"create": {"admin-tokens": "ops:admin:" + "0" * 64}}}],
        [{}, {"replicas": 3}, {"autoscaling": {"enabled": True}}],
        [{}, {"networkPolicy": {"enabled": True}, "serviceMonitor": {"enabled": True, "labels": {"release": "x"}}, "grpc": {"enabled": False}, "serviceAccount": {"create": False},
              "podAnnotations": {"a": "b"}, "podLabels": {"c": "d"}, "env": [{"name": "FLUXGATE__TELEMETRY__LEVEL", "value": "debug"}],
              "volumes": [{"name": "cache", "emptyDir": {}}], "volumeMounts": [{"name": "cache", "mountPath": "/var/lib/fluxgate"}],
              "nodeSelector": {"e": "f"}, "tolerations": [{"operator": "Exists"}], "priorityClassName": "high", "image": {"pullSecrets": [{"name": "registry"}]},
              "affinity": {"nodeAffinity": {}}, "service": {"annotations": {"g": "h"}, "labels": {"i": "j"}}}],
    ]

    def setUp(self):
        super().setUp()
        run("tar", "-xzf", only(f"fluxgate-{version()}.tgz"), "-C", self.dir)
        self.chart = self.dir / "fluxgate"
        self.values = yaml.safe_load((self.chart / "values.yaml").read_text())

    def template(self, values, check=True):
        """Returns the objects that would be sent to a cluster."""
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(yaml.safe_dump(values))
            file.flush()
            command = [HELM, "template", "limits", self.chart, "--namespace", "here", "--values", file.name]
            # Without its build flags, helm takes the cluster for an old one.
            command += ["--kube-version", KUBERNETES]
            text = run(*command, check=check)
        return [it for it in yaml.safe_load_all(text) if it] if check else text

    def config_of(self, objects):
        maps = {it["metadata"]["name"]: it["data"] for it in objects if it["kind"] == "ConfigMap"}
        return maps["limits-fluxgate-config"]["fluxgate.yaml"]

    def test_helm_accepts_the_package(self):
        printed = run(HELM, "lint", "--strict", only(f"fluxgate-{version()}.tgz"))
        self.assertIn("0 chart(s) failed", printed)
        shown = yaml.safe_load(run(HELM, "show", "chart", only(f"fluxgate-{version()}.tgz")))
        self.assertEqual((shown["version"], shown["appVersion"]), (version(), version()))

    def test_every_combination_of_values_gives_valid_objects_and_configs(self):
        combinations = list(itertools.product(*self.CHOICES))
        impossible = lambda it: not it[0] and (it[5] or it[3] == {"rules": {"source": "stored"}})

        def render(choices):
            values = {}
            for choice in choices:
                merge(values, choice)
            if impossible(choices):
                text = self.template(values, check=False)
                self.assertRegex(text, "needs? `store.type: redis`")
                return []
            return self.template(values)

        with ThreadPoolExecutor(2) as pool:
            rendered = list(pool.map(render, combinations))
        kinds, valid, configs = set(), set(), set()
        for choices, objects in zip(combinations, rendered):
            if not objects:
                self.assertTrue(impossible(choices), choices)
                continue
            kinds |= {it["kind"] for it in objects}
            for it in objects:
                text = json.dumps(it, sort_keys=True)
                # There is no schema of the operator's kinds here.
                if text not in valid and it["kind"] != "ServiceMonitor":
                    kubernetes_validate.validate(it, KUBERNETES, strict=True)
                valid.add(text)
            self.assert_matching(objects)
            configs.add(self.config_of(objects))
        self.assertEqual(
            kinds,
            {"ConfigMap", "Deployment", "HorizontalPodAutoscaler", "NetworkPolicy", "Pod", "PodDisruptionBudget",
             "Secret", "Service", "ServiceAccount", "ServiceMonitor"},
        )
        self.assertGreater(len(configs), 50)
        self.assertTrue(any("denials: 1000000\n" in config for config in configs))
        for config in configs:
            file = self.write("fluxgate.yaml", config)
            run(STATIC, "validate", file)

    def assert_matching(self, objects):
        """Names that objects have for one another belong to objects, unless values brought them."""
        (deployment,) = [it for it in objects if it["kind"] == "Deployment"]
        pod = deployment["spec"]["template"]
        spec, labels = pod["spec"], pod["metadata"]["labels"]
        (container,) = spec["containers"]
        ports = {port["name"] for port in container["ports"]}
        selects = lambda selector: selector.items() <= labels.items()
        self.assertTrue(selects(deployment["spec"]["selector"]["matchLabels"]))
        services = [it for it in objects if it["kind"] == "Service"]
        for service in services:
            self.assertTrue(selects(service["spec"]["selector"]))
            self.assertLessEqual({port["targetPort"] for port in service["spec"]["ports"]}, ports)
        for it in objects:
            if it["kind"] == "PodDisruptionBudget":
                self.assertTrue(selects(it["spec"]["selector"]["matchLabels"]))
            if it["kind"] == "NetworkPolicy":
                self.assertTrue(selects(it["spec"]["podSelector"]["matchLabels"]))
                for rule in it["spec"]["ingress"]:
                    self.assertLessEqual({port["port"] for port in rule["ports"]}, ports)
            if it["kind"] == "ServiceMonitor":
                wanted = it["spec"]["selector"]["matchLabels"].items()
                matching = [service for service in services if wanted <= service["metadata"]["labels"].items()]
                self.assertEqual(len(matching), 1)
                self.assertEqual(it["spec"]["endpoints"][0]["port"], matching[0]["spec"]["ports"][0]["name"])
            if it["kind"] == "Pod":
                self.assertFalse(selects({}) and it["metadata"]["labels"].items() >= services[0]["spec"]["selector"].items())
        existing = {"mine", "tls"} | {it["metadata"]["name"] for it in objects if it["kind"] in ("ConfigMap", "Secret")}
        volumes = {it["name"] for it in spec["volumes"]}
        for volume in spec["volumes"]:
            source = volume.get("configMap", {}).get("name") or volume.get("secret", {}).get("secretName")
            self.assertTrue("emptyDir" in volume or source in existing, volume)
        self.assertEqual({it["name"] for it in container["volumeMounts"]}, volumes)
        config = yaml.safe_load(self.config_of(objects))
        self.assertEqual(set(config["listen"]), ports)
        mounts = tuple(it["mountPath"] + "/" for it in container["volumeMounts"])
        for path in re.findall(r"(?<=: )/\S+", self.config_of(objects)):
            self.assertTrue((path + "/").startswith(mounts), path)
        probes = {container[probe]["httpGet"]["scheme"] for probe in ["startupProbe", "livenessProbe", "readinessProbe"]}
        has_tls = isinstance(config["listen"]["api"], dict)
        self.assertEqual(probes, {"HTTPS" if has_tls else "HTTP"})
        self.assertEqual(any(it["kind"] == "Pod" for it in objects), not has_tls)

    def test_what_cannot_work_is_refused(self):
        for values, message in [
            ({"gateway": {"enabled": True}}, "needs routes in `config.gateway.routes`"),
            ({"tls": {"listeners": ["api"]}}, "`tls.listeners` needs `tls.secret`"),
            ({"secrets": {"existing": "a", "create": {"hash-secret": "b"}}}, "exclude each other"),
            ({"secrets": {"entries": ["hash-secret"]}}, "needs the name of a Secret"),
            ({"replica": 2}, "replica"),
            ({"store": {"type": "file"}}, "type"),
            ({"tls": {"secret": "a", "listeners": ["http"]}}, "listeners"),
        ]:
            self.assertIn(message, self.template(values, check=False))

    def test_the_config_and_the_rules_of_the_chart_run(self):
        objects = self.template({"gateway": {"enabled": True}, "config": self.ROUTES})
        maps = {it["metadata"]["name"]: it["data"] for it in objects if it["kind"] == "ConfigMap"}
        config = self.write("fluxgate.yaml", maps["limits-fluxgate-config"]["fluxgate.yaml"])
        for name, rules in maps["limits-fluxgate-rules"].items():
            self.write(f"rules.d/{name}", rules)
        api, gateway = free_port(), free_port()
        options = ["--config", config]
        for option in [f"listen.api=127.0.0.1:{api}", f"listen.gateway=127.0.0.1:{gateway}", "listen.grpc=null",
                       "listen.resp=null", f"rules_from.dir={self.dir}/rules.d", "shutdown.delay=0s"]:
            options += ["--set", option]
        healthy = lambda: subprocess.run([STATIC, "health", *options], capture_output=True).returncode == 0
        with started([STATIC, "run", *options], healthy):
            curl = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code} ", "-H", "X-User-Id: ann"]
            # Ten at once; units return every 100 ms.
            statuses = run(*curl, f"http://127.0.0.1:{gateway}/api/[1-50]").split()
        self.assertEqual(statuses[:10], ["200"] * 10)
        self.assertIn("429", statuses)

    def test_the_guide_describes_every_value_and_its_examples_work(self):
        guide = (self.chart / "README.md").read_text()
        table = guide[guide.index("## Values") :]
        documented = set()
        for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE):
            documented.update(re.findall(r"`([\w.]+)`", row))
        self.assertEqual(documented, set(leaves(self.values)))
        for number, example in enumerate(re.findall(r"^```yaml helm \S+\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)):
            objects = self.template(yaml.safe_load(example))
            run(STATIC, "validate", self.write(f"{number}.yaml", self.config_of(objects)))
        self.assertEqual(number, 1)

    def test_the_schema_has_every_value_and_no_other(self):
        schema = json.loads((self.chart / "values.schema.json").read_text())
        validator_for(schema).check_schema(schema)

        def compare(schema, values, path=""):
            if "$ref" in schema:
                _, kind, name = schema["$ref"].split("/")
                schema = root[kind][name]
            if schema.get("additionalProperties", True) is not False:
                return
            self.assertEqual(set(schema["properties"]) - {"global"}, set(values), path)
            for name, value in values.items():
                if isinstance(value, dict):
                    compare(schema["properties"][name], value, f"{path}.{name}")

        root = schema
        compare(schema, self.values)


def merge(into, values):
    for name, value in values.items():
        if isinstance(value, dict):
            merge(into.setdefault(name, {}), value)
        else:
            into[name] = value


# Mappings whose content is up to users.
FREE = {"rules.files", "resources", "store.redis.settings", "secrets.create", "config"}


def leaves(values, path=""):
    for name, value in values.items():
        full = f"{path}{name}"
        if isinstance(value, dict) and value and full not in FREE:
            yield from leaves(value, f"{full}.")
        else:
            yield full


if __name__ == "__main__":
    program = unittest.main(exit=False, verbosity=2)
    result = program.result
    failed = len(result.failures) + len(result.errors)
    print(f"packages: {result.testsRun - failed} passed, {failed} failed", flush=True)
    sys.exit(not result.wasSuccessful())
