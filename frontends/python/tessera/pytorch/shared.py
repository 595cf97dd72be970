# SPDX-License-Identifier: Apache-2.0
"""Compiles that the processes of one host share: the ranks of a distributed program compile the same graphs at the same time.

With a cache (TESSERA_CACHE_DIR, or disk.path in the config) one process compiles a graph while those that need the same wait for it,
and then take it from the cache. The lock is one of the operating system on a file beside the cache: it is free again when its holder
dies. Who waits longer than TESSERA_COMPILE_LOCK_SECONDS (600) says so and compiles by itself: a process that hangs stops no other.
"""

import contextlib
import hashlib
import json
import os
import sys
import time

try:
    import fcntl
except ImportError:  # no such locks on this system: every process compiles for itself
    fcntl = None

_PRINT_PARAMS = 16  # constants of many elements by name alone
_LOCKS = 64
_POLL_SECONDS = 0.02


def has_peers():
    """Whether this process is one of several ranks."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size() > 1
    return os.environ.get("WORLD_SIZE", "1") not in ("", "0", "1")


def _folder(context):
    """Where the context keeps what it has compiled, or None."""
    if os.environ.get("TESSERA_FORCE_DISABLE_CACHES") == "1" or os.environ.get("TESSERA_GRAPH_CACHE") == "0":
        return None
    named = os.environ.get("TESSERA_CACHE_DIR")
    if not named:
        values = {v["key"]: v["value"] for v in json.loads(context.explain()).get("values", [])}
        named = values.get("disk.path")
    return os.path.expanduser(named) if named else None


def _timeout():
    try:
        return float(os.environ.get("TESSERA_COMPILE_LOCK_SECONDS", "600"))
    except ValueError:
        return 600.0


@contextlib.contextmanager
def locked(folder, name, seconds):
    """Holds the lock of this name. Gives whether it is held: not where there can be none, or another process keeps it too long."""
    try:
        os.makedirs(os.path.join(folder, "locks"), mode=0o700, exist_ok=True)
        file = os.open(os.path.join(folder, "locks", name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield False
        return
    try:
        held, until = False, time.monotonic() + seconds
        while not held:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = True
            except BlockingIOError:
                if time.monotonic() >= until:
                    sys.stderr.write(
                        f"tessera: another process has been compiling the same graph for {seconds:g} s; this one does not wait "
                        "any longer (TESSERA_COMPILE_LOCK_SECONDS)\n"
                    )
                    break
                time.sleep(_POLL_SECONDS)
            except OSError:  # a file system without locks
                break
        yield held
    finally:
        os.close(file)


def compile_shared(context, graph):
    """context.compile(graph), once for all ranks of this host."""
    folder = _folder(context) if fcntl is not None and has_peers() else None
    if folder is None:
        return context.compile(graph)
    digest = hashlib.sha256(graph.print(_PRINT_PARAMS).encode()).digest()
    with locked(folder, f"{digest[0] % _LOCKS:02x}", _timeout()) as held:
        executable = context.compile(graph)
        if held:
            context.cache_flush()  # whoever waits is to find all of it
    return executable
