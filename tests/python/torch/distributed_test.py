# SPDX-License-Identifier: Apache-2.0
"""Several processes over gloo: DDP and FSDP2 with compiled models, collectives in graphs, compiles that ranks share, faults."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))


class Distributed(unittest.TestCase):
    def run_ranks(self, scenario, seconds, expected=(0, 0)):
        """Two processes, ended after `seconds`: what each has found, and its standard error."""
        with tempfile.TemporaryDirectory() as folder:
            environment = {
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "TESSERA_CACHE_DIR": os.path.join(folder, "cache"),
                "TESSERA_LOGS": "passes",
                "PYTHONPATH": os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")]),
            }
            logs = [open(os.path.join(folder, f"{rank}.log"), "w+b") for rank in range(2)]
            ranks = [
                subprocess.Popen(
                    [sys.executable, os.path.join(HERE, "distributed_worker.py"), scenario, str(rank), folder],
                    env=environment,
                    stdout=subprocess.DEVNULL,
                    stderr=logs[rank],
                )
                for rank in range(2)
            ]
            try:
                codes = [r.wait(seconds) for r in ranks]
            except subprocess.TimeoutExpired:
                for r in ranks:
                    r.kill()
                self.fail(f"{scenario}: the ranks hang\n{self.text(logs)}")
            if tuple(codes) != tuple(expected):
                self.fail(f"{scenario}: exit codes {codes}\n{self.text(logs)}")
            found = []
            for rank in range(2):
                path = os.path.join(folder, f"{rank}.json")
                found.append(None)
                if os.path.exists(path):
                    with open(path) as file:
                        found[rank] = json.load(file)
            texts = []
            for log in logs:
                log.seek(0)
                texts.append(log.read().decode())
                log.close()
            return found, texts

    @staticmethod
    def text(logs):
        out = ""
        for log in logs:
            log.seek(0)
            out += log.read().decode()[-3000:] + "\n"
        return out

    def test_losses_of_wrapped_models(self):
        found, texts = self.run_ranks("losses", 1800)
        for rank, one in enumerate(found):
            for name, values in one["losses"].items():
                exact = one["losses"][f"{name.split()[0]} eager"]
                for step, (v, e) in enumerate(zip(values, exact)):
                    self.assertLessEqual(abs(v - e), 1e-5 * abs(e), f"rank {rank}, {name}, step {step}")
            self.assertEqual(one["refused"], [])
            for way in ("ddp before", "ddp after", "fsdp before", "fsdp after"):
                self.assertGreater(one["graphs"][way], 0, way)
        self.assertNotEqual(found[0]["losses"]["ddp eager"], found[1]["losses"]["ddp eager"])  # ranks have data of their own
        # Whatever both ranks need, one has compiled, and the other has found.
        entries = [[line.split()[-1] for line in t.splitlines() if "comes from the cache, entry" in line] for t in texts]
        graphs = [sum(one["graphs"].values()) for one in found]
        self.assertEqual(graphs[0], graphs[1])
        compiled = sum(graphs) - sum(len(e) for e in entries)
        different = {e for of in entries for e in of}
        self.assertGreater(len(different), 0)
        self.assertLessEqual(compiled, len(different), f"{sum(graphs)} graphs, {entries}")

    def test_collectives_are_steps_of_a_plan(self):
        found, _ = self.run_ranks("collectives", 600)
        for one in found:
            self.assertLess(one["error"], 1e-6)
            self.assertEqual(one["regions"], [1])
            self.assertGreaterEqual(one["steps"][0], 4)  # two collectives and what waits for them
            self.assertTrue(all(op.startswith("_c10d_functional.") for op in one["through"]), one["through"])

    def test_ranks_of_different_graphs(self):
        found, _ = self.run_ranks("different", 600)
        self.assertTrue(any(one["error"] for one in found), found)

    def test_a_rank_dies_while_others_compile(self):
        found, _ = self.run_ranks("dies", 600, expected=(0, 9))
        self.assertTrue(found[0]["held"])  # the lock is free when its holder is gone
        self.assertIsNotNone(found[0]["error"])
        self.assertIsNone(found[1])

    def test_a_lock_that_is_never_given_back(self):
        found, texts = self.run_ranks("hangs", 600)
        self.assertEqual(found[0]["value"], [1.0, 1.0, 1.0])
        self.assertIn("this one does not wait any longer", texts[0])


if __name__ == "__main__":
    unittest.main()
