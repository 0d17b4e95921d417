#!/usr/bin/env python3
"""What each way of handing over an image costs an engine: vLLM's own media loader, CPU time of the loading process.

media_loading.py FILE…   For each file and, if it is there, FILE.bmp: by data URI, by URL from a server on loopback, by
file URL. The fastest of 30 loads each, in milliseconds of CPU and of wall time, and the pixels' distance between a file
and its bitmap. Needs vLLM.
"""

import base64
import http.server
import pathlib
import sys
import threading
import time

import numpy
from vllm.multimodal.media.connector import MediaConnector
from vllm.multimodal.media.image import ImageMediaIO

TIMES = 30
KINDS = {".jpg": "image/jpeg", ".png": "image/png", ".webp": "image/webp", ".bmp": "image/bmp"}


def serve(directory):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def __init__(self, *args):
            super().__init__(*args, directory=directory)

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def fastest(load):
    best = [float("inf")] * 2
    for _ in range(TIMES):
        cpu, wall = time.thread_time(), time.perf_counter()
        load()
        best = [
            min(best[0], (time.thread_time() - cpu) * 1e3),
            min(best[1], (time.perf_counter() - wall) * 1e3),
        ]
    return best


loader = ImageMediaIO(image_mode="RGB")
print(f"{'file':<28} {'bytes':>9}  " + "  ".join(f"{way:>6} cpu/wall ms" for way in ("data", "url", "file")))
for name in sys.argv[1:]:
    pixels = []
    for path in (pathlib.Path(name).resolve(), pathlib.Path(name + ".bmp").resolve()):
        if not path.exists():
            continue
        connector = MediaConnector(allowed_local_media_path=str(path.parent))
        content = path.read_bytes()
        urls = (
            f"data:{KINDS[path.suffix]};base64,{base64.b64encode(content).decode()}",
            f"{serve(path.parent)}/{path.name}",
            path.as_uri(),
        )
        figures = [fastest(lambda url=url: connector.load_from_url(url, loader)) for url in urls]
        print(f"{path.name:<28} {len(content):>9}  " + "  ".join(f"{cpu:>8.2f} /{wall:>8.2f}" for cpu, wall in figures))
        image = loader.load_bytes(content).media
        pixels.append(numpy.asarray(image, dtype=int))
    if len(pixels) == 2:
        distance = numpy.abs(pixels[0] - pixels[1])
        print(f"{'':<28} bitmap differs in {(distance > 0).mean():.1%} of samples, by {distance.max()} at most")
