# SPDX-License-Identifier: Apache-2.0
"""Dynamo's graph breaks and recompiles in the folder that TESSERA_TRACE names, so that `tessera report` shows them beside ours.

They come from PyTorch's structured trace, which it writes to a logger; a handler of ours keeps the two kinds and drops the
rest. The file is one of schema tessera.trace/1 (docs/trace.md), and begins with the first of them.
"""

import json
import logging
import os
import re
import sys
import threading
import time

VARIABLE = "TESSERA_TRACE"
_PLACE = re.compile(r'File "(.*)", line (\d+), in (\S+)')


class DynamoTrace(logging.Handler):
    def __init__(self, folder):
        super().__init__(logging.DEBUG)
        self.folder, self._file, self._start, self._threads = folder, None, 0.0, {}

    def emit(self, record):
        metadata = getattr(record, "metadata", None)
        if not isinstance(metadata, dict):
            return
        try:
            artifact = metadata.get("artifact")
            if isinstance(artifact, dict) and artifact.get("name") == "dynamo_graph_break_reason":
                self._write("graph_break", graph_break(str(record.payload), entry_of(metadata)))
            metrics = metadata.get("compilation_metrics")
            if isinstance(metrics, dict) and metrics.get("recompile_reason"):
                self._write("recompile", recompile(metrics, entry_of(metadata)))
        except OSError as e:  # a trace never fails a program
            torch_trace().removeHandler(self)
            sys.stderr.write(f"tessera: Dynamo's graph breaks and recompiles are not recorded: {e}\n")

    def _write(self, event, fields):
        now = time.time()
        if self._file is None or self._file[0] != os.getpid():  # a forked child starts a file of its own
            self._open(now)
        thread = self._threads.setdefault(threading.get_ident(), len(self._threads))
        line = {"event": event, "t": round((now - self._start) * 1e6, 1), "thread": thread, **fields}
        os.write(self._file[1], (json.dumps(line) + "\n").encode())

    def _open(self, now):
        from .. import __version__

        os.makedirs(self.folder, exist_ok=True)
        path = os.path.join(self.folder, f"dynamo-{int(now)}-{os.getpid()}-{time.perf_counter_ns() % 1000:03}.jsonl")
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._file, self._start, self._threads = (os.getpid(), file), now, {}
        head = {
            "event": "process",
            "schema": "tessera.trace/1",
            "pid": os.getpid(),
            "unix_us": int(now * 1e6),
            "command": "Dynamo in " + " ".join(sys.argv),
            "version": __version__,
        }
        os.write(file, (json.dumps(head) + "\n").encode())


def entry_of(metadata):
    """The compile that an event belongs to, as PyTorch's logs number it: frame/compile."""
    return f"{metadata.get('frame_id', '?')}/{metadata.get('frame_compile_id', '?')}"


def graph_break(text, entry):
    """What Dynamo says of a graph break, taken apart. Its wording differs between versions: what is not found stays empty."""

    users = text.partition("\nTraceback (most recent call last):\n")[0]  # without Dynamo's own frames

    def after(label):
        found = re.search(rf"^[ \t]*{label}:[ \t]*(.*)$", users, re.MULTILINE)
        return found[1].strip() if found else ""

    place = re.search(r"in user code at (.*):(\d+)", users)
    reason = re.search(r"Graph Break Reason:(.*?)(^[ \t]*Explanation:|\Z)", users, re.MULTILINE | re.DOTALL)
    said = [line.strip() for line in (reason[1] if reason else users).splitlines() if line.strip()] or [""]
    frames = _PLACE.findall(users) or _PLACE.findall(text)
    file, line, name = frames[-1] if frames else ("", "0", "?")
    hints = re.findall(r"^[ \t]*Hint:[ \t]*(.*)$", users, re.MULTILINE)
    return {
        "name": name,
        "loc": f"{file}:{line}",
        "entry": entry,
        "code": "Dynamo",
        "place": f"{place[1]}:{place[2]}" if place else f"{file}:{line}",
        "what": said[-1] if reason else said[0],
        "why": after("Explanation"),
        "hint": "\n".join(hints),
    }


def recompile(metrics, entry):
    reason = str(metrics["recompile_reason"])
    return {
        "name": str(metrics.get("co_name", "?")),
        "loc": f"{metrics.get('co_filename', '')}:{metrics.get('co_firstlineno', 0)}",
        "entry": entry,
        "reasons": [{"entry": reason.partition(":")[0], "guards": [reason.partition(":")[2].strip() or reason]}],
    }


def torch_trace():
    from torch._logging import _internal

    return _internal.trace_log


def start():
    """Records from now on when TESSERA_TRACE names a folder."""
    folder = os.environ.get(VARIABLE)
    if folder and not any(isinstance(h, DynamoTrace) for h in torch_trace().handlers):
        torch_trace().addHandler(DynamoTrace(folder))
