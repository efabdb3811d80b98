"""Two reward services behind nginx and behind HAProxy, with the configuration files of examples/balancer."""

import base64
import http.client
import os
import re
import shutil
import ssl
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image

from reward import CaptionSample, RemoteReward, load_scorer
from reward.errors import ServiceError
from reward.http_client import http_library
from tests.toys.loopback_http import certificate, free_port
from tests.toys.loopback_service import ROOT, ServerProcess, loopback_service
from tests.toys.pictures import png

CLIENTS, SERVICES = "key-of-the-clients", "key-of-the-services"
REFERENCES = ["A red star shines on the grass."]

NGINX = """
daemon off; pid {folder}/pid; error_log {folder}/log; worker_processes 1; {user}
events {{}}
http {{
    access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    include {folder}/rewards.conf;
}}
"""


def until(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def services():
    options, key = ("--metric", "unigram", "--devices", "cpu"), {"CAPREWARD_TOKEN": SERVICES}
    with loopback_service(*options, environment=key) as one, loopback_service(*options, environment=key) as other:
        yield [one, other]


@pytest.fixture(scope="module", params=["nginx", "haproxy"])
def balancer(request, services, tmp_path_factory):
    """The address of a balancer; SSL_CERT_FILE and CAPREWARD_TOKEN are set for its clients."""
    program = shutil.which(request.param, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip(f"{request.param} is not installed: apt-get install {request.param}")
    folder, port = tmp_path_factory.mktemp(request.param), free_port()
    file = certificate(folder)
    (given,) = (ROOT / "examples" / "balancer").glob(f"{request.param}.*")
    text = given.read_text(encoding="utf-8").replace("KEY_OF_CLIENTS", CLIENTS).replace("KEY_OF_SERVICES", SERVICES)
    places = {"8443": port, "8123": services[0].port, "8124": services[1].port}
    text = re.sub(r"\b(8443|8123|8124)\b", lambda found: str(places[found[0]]), text)
    (folder / "rewards.conf").write_text(re.sub(r"/etc/\w+/certificate\.pem", str(file), text))
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, user=user))
    command = {
        "nginx": [program, "-c", folder / "nginx.conf"],
        "haproxy": [program, "-db", "-f", folder / "rewards.conf"],
    }
    process = subprocess.Popen(command[request.param], cwd=folder)
    patch = pytest.MonkeyPatch()
    patch.setenv("SSL_CERT_FILE", str(file))
    patch.setenv("CAPREWARD_TOKEN", CLIENTS)
    url = f"https://127.0.0.1:{port}"
    try:
        until(lambda: process.poll() is not None or status(url, "/health") == 200)
        yield url
    finally:
        patch.undo()
        process.terminate()
        process.wait(30)


def status(url, path, key=CLIENTS):
    try:
        context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
        headers = {"Authorization": f"Bearer {key}"}
        return int(http_library().get(url + path, headers=headers, verify=context).status_code)
    except http_library().HTTPError:
        return 0


def answered(service):
    """How many requests for scores a service has answered since it started."""
    reply = http_library().get(f"{service.url}/metrics", headers={"Authorization": f"Bearer {SERVICES}"})
    found = re.search(r'requests_total\{path="/score",status="200"\} ([\d.]+)', reply.text)
    return int(float(found[1])) if found else 0


def call(reward, number):
    captions = [f"A red star number {number} shines.", "A red star."]
    found = reward(prompts=["Describe."] * 2, completions=captions, references=[REFERENCES] * 2)
    samples = [CaptionSample(caption, None, REFERENCES) for caption in captions]
    assert found == load_scorer("unigram").score(samples).column("f1").tolist()


def test_requests_take_turns_and_need_the_balancer_s_key(balancer, services, monkeypatch):
    before = [answered(service) for service in services]
    reward = RemoteReward(balancer, "unigram")
    for number in range(20):
        call(reward, number)
    counts = [answered(service) - count for service, count in zip(services, before, strict=True)]
    assert (sum(counts), min(counts) >= 8) == (20, True), counts
    assert [status(balancer, "/info", key) for key in (CLIENTS, SERVICES, "another")] == [200, 401, 401]
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(ServiceError, match="certificate verify failed"):
        call(RemoteReward(balancer, "unigram", patience=1.0), 0)


def test_large_bodies(balancer):
    image = png(Image.frombytes("RGB", (2500, 2500), os.urandom(3 * 2500 * 2500)))
    sample = {
        "candidates": ["A star."],
        "references": REFERENCES,
        "image": {"base64": base64.b64encode(image).decode()},
    }
    context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
    headers = {"Authorization": f"Bearer {CLIENTS}"}
    body = {"metric": "unigram", "samples": [sample]}
    reply = http_library().post(f"{balancer}/score", json=body, headers=headers, verify=context, timeout=60)
    assert (len(image) > 18e6, reply.status_code) == (True, 200), reply.text[:300]
    connection = http.client.HTTPSConnection(balancer.removeprefix("https://"), context=context, timeout=60)
    connection.putrequest("POST", "/score")
    for name, value in {**headers, "Content-Length": "40000000"}.items():
        connection.putheader(name, value)
    connection.endheaders(bytes(20_000))  # more than HAProxy waits for
    assert connection.getresponse().status == 413


def test_services_that_end_and_come_back_cost_no_row(balancer, services):
    reward, stop = RemoteReward(balancer, "unigram"), threading.Event()

    def client(number):
        while not stop.is_set():
            call(reward, number)
            time.sleep(0.05)

    with ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(client, number) for number in range(8)]
        try:
            for end, ended in ((ServerProcess.stop, services[:1]), (ServerProcess.kill, services)):
                until(lambda: all(answered(service) for service in services))  # since they started
                for service in ended:
                    end(service)
                time.sleep(3)
                for service in ended:
                    service.start()
                for service in ended:
                    service.wait()
        finally:
            stop.set()
        for each in clients:
            each.result()
    assert not reward.failures
