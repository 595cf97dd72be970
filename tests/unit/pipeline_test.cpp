// SPDX-License-Identifier: Apache-2.0
// Textual pipelines: what reads, what does not, and that printing reads back. The passes themselves are not run here.
#include "pass/pipeline.hpp"

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "context/context.hpp"
#include "host_support.hpp"
#include "support/error.hpp"

namespace pipeline_test {

using namespace tessera::core;
using tessera::test::bare_host;
using tessera::test::build_dir;

namespace {

std::string read(const std::string& text) {
  std::string s;
  for (const PipelineItem& item : parse_pipeline(text)) {
    s += (s.empty() ? "" : "; ") + item.name;
    for (const auto& [name, value] : item.given) s += " " + name + ":" + value;
  }
  return s;
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.code() + " " + e.message();
  }
  return "none";
}
std::string refusal(const std::string& text) {
  return message_of([&] { parse_pipeline(text); });
}

std::shared_ptr<Context> context() {
  const std::string dir = build_dir() + "/lib/tessera/plugins";
  const char* dirs[] = {dir.c_str()};
  tsr_context_options options{};
  options.struct_size = sizeof options;
  options.config_text = R"([plugins]
load = ["tessera.pass.canonicalize", "tessera.pass.constant_fold", "tessera.pass.decompose", "tessera.opset.standard", "tessera.backend.reference"]
[backends]
order = ["reference"]
)";
  options.plugin_dirs = dirs;
  options.num_plugin_dirs = 1;
  return Context::create(&options, bare_host());
}

}  // namespace

TEST_CASE("pipelines are read") {
  CHECK(read("") == "");
  CHECK(read("  ") == "");
  CHECK(read("cse") == "cse");
  CHECK(read(" canonicalize,cse , dce ") == "canonicalize; cse; dce");
  CHECK(read("a, b,") == "a; b");
  CHECK(read("fuse{max_size=64, mode=\"deep, er\"}, dce") == "fuse max_size:64 mode:\"deep, er\"; dce");
  CHECK(read("fuse{}") == "fuse");
  CHECK(read("fuse{ x = -1.5e3 , }") == "fuse x:-1.5e3");
  CHECK(read("decompose{ops=[\"softmax\", gelu]}") == "decompose ops:[\"softmax\", \"gelu\"]");
  CHECK(read("decompose{ops=[]}") == "decompose ops:[]");
  CHECK(read("acme.pass-2{s=\"a\\\"b\"}") == "acme.pass-2 s:\"a\\\"b\"");
}

TEST_CASE("errors point at the place") {
  CHECK(refusal("cse,,dce") == "TSR-C020 pipeline, column 5: found ',', expected the name of a pass\n  cse,,dce\n      ^");
  CHECK(refusal("cse dce") == "TSR-C020 pipeline, column 5: found 'd', expected ',' or the end\n  cse dce\n      ^");
  CHECK(refusal("fuse{max") == "TSR-C020 pipeline, column 9: found the end, expected '='\n  fuse{max\n          ^");
  CHECK(refusal("fuse{max=}") == "TSR-C020 pipeline, column 10: found '}', expected a value\n  fuse{max=}\n           ^");
  CHECK(refusal("fuse{max=1 min=2}") ==
        "TSR-C020 pipeline, column 12: found 'm', expected ',' or '}'\n  fuse{max=1 min=2}\n             ^");
  CHECK(refusal("fuse{=1}") ==
        "TSR-C020 pipeline, column 6: found '=', expected the name of an option, or '}'\n  fuse{=1}\n       ^");
  CHECK(refusal("fuse{a=\"x}") == "TSR-C020 pipeline, column 11: found the end, expected '\"'\n  fuse{a=\"x}\n            ^");
  CHECK(refusal("fuse{a=[1, 2}") ==
        "TSR-C020 pipeline, column 13: found '}', expected ',' or ']'\n  fuse{a=[1, 2}\n              ^");
  CHECK(refusal("fuse{a=[[1]]}") == "TSR-C020 pipeline, column 9: found '[', expected a value\n  fuse{a=[[1]]}\n          ^");
  CHECK(
      refusal("fuse{a=1, a=2}") ==
      "TSR-C020 pipeline, column 11: found 'a', expected another option: 'a' is given twice\n  fuse{a=1, a=2}\n            ^");
  CHECK(refusal("cse}") == "TSR-C020 pipeline, column 4: found '}', expected ',' or the end\n  cse}\n     ^");
  CHECK(refusal("cse,\n!") == "TSR-C020 pipeline, column 6: found '!', expected the name of a pass\n  cse, !\n       ^");
  CHECK(refusal(std::string("cse,\x01", 5)) ==
        "TSR-C020 pipeline, column 5: found byte 1, expected the name of a pass\n  cse, \n      ^");
  // A long text is cut around the place.
  const std::string far = refusal(std::string(1000, 'a') + " !" + std::string(1000, 'b'));
  CHECK(far.size() < 250);
  CHECK(far.find("column 1002") != std::string::npos);
  // Depth is no way to the end of the stack.
  CHECK(refusal("a{b=" + std::string(100000, '[')).find("expected a value") != std::string::npos);
}

TEST_CASE("passes are found and their options completed") {
  const auto c = context();
  const auto passes = bind_pipeline(*c, "canonicalize, constant_fold{max_bytes=64}, decompose{ops=[softmax]}, constant_fold");
  REQUIRE(passes.size() == 4);
  CHECK(passes[1].options.find("max_bytes")->i == 64);
  CHECK(passes[3].options.find("max_bytes")->i == 1 << 20);
  const std::string printed = print_pipeline(passes);
  CHECK(printed ==
        "canonicalize, constant_fold{max_bytes=64, freezing=true}, decompose{ops=[\"softmax\"]}, "
        "constant_fold{max_bytes=1048576, freezing=true}");
  CHECK(print_pipeline(bind_pipeline(*c, printed)) == printed);

  CHECK(message_of([&] { bind_pipeline(*c, "canonicalise"); }).find("did you mean 'canonicalize'") != std::string::npos);
  CHECK(message_of([&] { bind_pipeline(*c, "canonicalise"); }).rfind("TSR-P030", 0) == 0);
  CHECK(message_of([&] { bind_pipeline(*c, "constant_fold{max_byte=1}"); }).find("max_bytes") != std::string::npos);
  CHECK(message_of([&] { bind_pipeline(*c, "constant_fold{max_bytes=-1}"); }).rfind("TSR-C004", 0) == 0);
  CHECK(message_of([&] { bind_pipeline(*c, "constant_fold{max_bytes=many}"); }).rfind("TSR-C003", 0) == 0);
}

}  // namespace pipeline_test
