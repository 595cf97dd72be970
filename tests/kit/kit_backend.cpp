// SPDX-License-Identifier: Apache-2.0
// A backend that runs everything the kit can express by its interpreter: fusion and lowering are tested without a device. With
// KIT_DUMP in the environment every kernel's text is appended to that file.
#include <cstdlib>
#include <fstream>

#include "tessera/kit/fit.hpp"
#include "tessera/kit/in_place.hpp"
#include "tessera/kit/interpret.hpp"
#include "tessera/kit/lower.hpp"
#include "tessera/kit/text.hpp"
#include "tessera/plugin.hpp"

namespace t = tessera::sdk;
namespace kit = tessera::kit;

namespace {

class Interpreted final : public t::Kernel {
 public:
  explicit Interpreted(const t::Compile& c) {
    const kit::NodePiece p = kit::piece_of(c.graph(), c.node());
    lowered_ = kit::lower(p.piece, "k");
    operand_of_ = p.operand_of;
    for (const tsr_dim d : lowered_.symbol_dims) dims_.push_back(t::launch_dim(c, d));
    if (const int i = kit::in_place_input(lowered_.kernel); i >= 0)
      in_place_ = static_cast<int>(operand_of_[static_cast<size_t>(i)]);
    pointwise_ = kit::reads_before_writing(lowered_.kernel);
    if (const char* file = std::getenv("KIT_DUMP"))
      std::ofstream(file, std::ios::app) << kit::print(lowered_.kernel) << "----\n";
  }
  std::string name() const override { return "interpreted"; }
  int in_place() const override { return in_place_; }
  uint32_t kernel_flags() const override { return pointwise_ ? TSR_KERNEL_POINTWISE : 0; }
  void launch(const tsr_launch& l) override {
    std::vector<void*> buffers;
    for (const uint32_t i : operand_of_) buffers.push_back(l.inputs[i].data);
    for (uint32_t i = 0; i < l.num_outputs; ++i) buffers.push_back(l.outputs[i].data);
    std::vector<int64_t> symbols;
    for (const t::LaunchDim& d : dims_) symbols.push_back(d.get(l.dims));
    const uint32_t faults = kit::interpret(lowered_.kernel, buffers, symbols);
    if (faults & kit::kFaultDivision) throw t::Error(TSR_USER, "TSR-R010", "integer division by zero");
    if (faults & kit::kFaultIndex) throw t::Error(TSR_USER, "TSR-R011", "index out of range");
  }

 private:
  kit::Lowered lowered_;
  std::vector<uint32_t> operand_of_;
  std::vector<t::LaunchDim> dims_;
  int in_place_ = -1;
  bool pointwise_ = false;
};

class Backend final : public t::Backend {
 public:
  const char* device() const override { return "cpu"; }
  uint64_t capabilities() const override { return TSR_CAP_FUSION | TSR_CAP_DETERMINISTIC | TSR_CAP_UNALIGNED; }
  t::Claim claim(t::Graph g, t::Node n) override {  // as docs/kernel_kit.md has it
    const kit::Piece piece = kit::piece_of(g, n).piece;
    const kit::Fit fit = kit::FitCache().of(piece);
    kit::Fit lowered;
    try {
      const kit::Lowered l = kit::lower(piece, "k0");
      lowered = {{}, kit::function_calls(l.kernel), l.symbol_dims.size()};
    } catch (const kit::Unfit& u) {
      lowered.why = u.why;
    }
    // Every claim of every test checks that what is remembered of an equal piece is what lowering says of this one.
    if (fit.why != lowered.why || fit.calls != lowered.calls || fit.symbols != lowered.symbols)
      throw t::Error(TSR_BUG, "TSR-P900", "remembered of an equal piece: '" + fit.why + "', found: '" + lowered.why + "'");
    if (!fit.why.empty()) throw kit::Unfit(fit.why);
    return t::yes();
  }
  std::unique_ptr<t::Kernel> compile(const t::Compile& c) override { return std::make_unique<Interpreted>(c); }
};

// Claims what it cannot compile.
class Rash final : public t::Backend {
 public:
  const char* device() const override { return "cpu"; }
  uint64_t capabilities() const override { return 0; }
  t::Claim claim(t::Graph, t::Node) override { return t::yes(); }
  std::unique_ptr<t::Kernel> compile(const t::Compile&) override { throw kit::Unfit("too much of a good thing"); }
};

}  // namespace

TESSERA_PLUGIN("acme.backend.kit", "0.1.0", "Acme") {
  plugin.add_backend("kit", std::make_unique<Backend>());
  plugin.add_backend("rash", std::make_unique<Rash>());
}
