// SPDX-License-Identifier: Apache-2.0
#include "command.hpp"

namespace tessera::command {

std::span<const Command> commands() {
  static const Command table[] = {
      {"run", "MODEL [--config FILE] [--inputs FILE]... [--outputs OUT.npz] [options]",
       "Runs a model once and writes or summarises its outputs.",
       "tessera run model.tsr --config configs/default.toml --inputs in.npz --outputs out.npz\n"
       "tessera run model.tsr --dim s0=32 --range ids=0:50256 --seed 7 --memory\n"
       "tessera run model.onnx --diagram model.svg\n"
       "tessera run model.onnx --inputs test_data_set_0/input_0.pb --inputs mask=mask.npy",
       run_model},
      {"bench", "MODEL [--config FILE] [--inputs FILE]... [options]",
       "Measures what a model costs: compile time, time per call, memory.",
       "tessera bench model.tsr --config configs/default.toml --inputs in.npz --threads 4 --json", bench},
      {"opt", "FILE [--passes LIST] [options]", "Runs passes over a graph and prints it as text IR.",
       "tessera opt model.tsr --passes canonicalize,cse,dce --timing\n"
       "tessera opt model.tsr --dump-after changed --dump-dir dumps --verify each",
       opt},
      {"memory", "MODEL [--svg FILE] [--values] [--json]",
       "Lists the plans of memory of a training step: peak, activations kept, time computed again.",
       "tessera memory step.tsr --svg front.svg", memory},
      {"import", "MODEL --output OUT.tsr [--weights OUT.npz] [options]", "Writes a model as text IR, its weights beside it.",
       "tessera import model.onnx --output model.tsr\n"
       "tessera run model.tsr --inputs model.npz --inputs in.npz",
       import_model},
      {"compare", "A.toml B.toml MODEL [options]",
       "Compares two configs on one model: numerics against a reference, speed, memory, compile time.",
       "tessera compare configs/eager.toml configs/default.toml model.tsr --seconds 5", compare},
      {"plugin", "list [--all] | check PATH | test PATH [--level L0..L4]",
       "Lists the plugins of a config, checks that one loads, or tests its conformance.",
       "tessera plugin list --all\n"
       "tessera plugin test build/plugins/acme.backend.npu.so --level L3 --junit results.xml\n"
       "tessera plugin check build/plugins/acme.backend.npu.so",
       plugin},
      {"compile", "MODEL --cache-dir DIR [--shapes s0=8,s1=128]...",
       "Compiles a model into a cache, for an image or an init container.",
       "tessera compile model.tsr --cache-dir /opt/app/cache --shapes s0=1 --shapes s0=64", compile_model},
      {"cache", "ls | prune [--max-bytes N] | export FILE | import FILE | verify",
       "Lists, prunes, exports, imports or checks what compilation has cached.",
       "tessera cache ls --cache-dir ~/.cache/tessera\n"
       "tessera cache export warm.tsrcache",
       cache},
      {"config", "explain [FILE] | options [FILE] | modes", "Explains a config: its values and where each came from.",
       "tessera config explain configs/default.toml --set numerics=relaxed\n"
       "tessera config options",
       config},
      {"ops", "[NAME] [--composite] [--markdown]", "Prints the op reference.",
       "tessera ops layer_norm\n"
       "tessera ops --markdown > ops.md",
       ops},
      {"new", "op|pass|backend|device|executor|partitioner|store|frontend NAME [--kit] [--dir DIR] [--vendor NAME]",
       "Writes the files of a new plugin that builds and passes its test.",
       "tessera new pass fold_scales --dir plugins/fold_scales\n"
       "tessera new backend npu --kit --vendor acme",
       scaffold},
      {"report", "DIR [--output FILE.html] [--perfetto FILE.json]",
       "Turns a folder of traces (TESSERA_TRACE) into one HTML page and a Perfetto trace.",
       "TESSERA_TRACE=trace tessera run model.tsr && tessera report trace", report_traces},
      {"version", "", "Prints the versions of the command, the plugin ABI and the IR.", "tessera version --json", version},
      {"help", "[COMMAND]", "Prints this text, or the help of one command.", "tessera help compare", help},
  };
  return table;
}

}  // namespace tessera::command
