// SPDX-License-Identifier: Apache-2.0
// Trace files. Whatever comes in, reading, the model, the page and the Perfetto trace are made; what is wrong becomes problems.
#include <cstdint>
#include <cstdlib>
#include <sstream>

#include "report/report.hpp"

using namespace tessera::report;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Bytes that are no header need not all be thrown away: half of the inputs get one.
  std::string text(reinterpret_cast<const char*>(data), size);
  if (size > 0 && (data[0] & 1) != 0)
    text = R"({"event":"process","t":0,"thread":0,"schema":"tessera.trace/1","pid":7,"unix_us":1})" + std::string("\n") + text;
  Traces traces;
  std::istringstream in(text);
  read_trace(in, "fuzz.jsonl", traces);
  if (traces.processes.size() > 1) std::abort();
  for (const Problem& p : traces.problems)
    if (p.what.empty()) std::abort();
  const Json model = make_model(traces);
  if (!Json::accept(make_perfetto(model))) std::abort();
  const std::string page = make_page(model);
  const size_t from = page.find("id=\"data\">") + 10;
  if (!Json::accept(page.substr(from, page.find("</script>", from) - from))) std::abort();
  return 0;
}
