// The backend @NAME@ over the kernel kit: the kit lowers nodes and fused groups to kernels, and says what it cannot. Here its
// interpreter runs them; a backend of your own prints them as text for its compiler (docs/kernel_kit.md: ModuleText for the
// host, GpuModuleText and SimtBackend for GPUs) and launches what that makes.
#include <tessera/kit/interpret.hpp>
#include <tessera/kit/lower.hpp>
#include <tessera/plugin.hpp>

namespace {

namespace t = tessera::sdk;
namespace kit = tessera::kit;

class Kernel final : public t::Kernel {
 public:
  explicit Kernel(const t::Compile& c) {
    const kit::NodePiece p = kit::piece_of(c.graph(), c.node());  // one node, or the body of a fused one
    lowered_ = kit::lower(p.piece, "k");
    operand_of_ = p.operand_of;
    for (const tsr_dim d : lowered_.symbol_dims) dims_.push_back(t::launch_dim(c, d));
    if (const int i = kit::in_place_input(lowered_.kernel); i >= 0)
      in_place_ = static_cast<int>(operand_of_[static_cast<size_t>(i)]);
  }
  std::string name() const override { return "@NAME@.kernel"; }
  int in_place() const override { return in_place_; }
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
};

class Backend final : public t::Backend {
 public:
  const char* device() const override { return "cpu"; }
  uint64_t capabilities() const override { return TSR_CAP_FUSION | TSR_CAP_DETERMINISTIC | TSR_CAP_UNALIGNED; }
  // What the kit cannot lower it throws kit::Unfit for, whose text is the reason of the refusal. Groups are claimed as nodes
  // are.
  t::Claim claim(t::Graph g, t::Node n) override {
    (void)kit::lower(kit::piece_of(g, n).piece, "k");
    return t::yes();
  }
  std::unique_ptr<t::Kernel> compile(const t::Compile& c) override { return std::make_unique<Kernel>(c); }
};

}  // namespace

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  plugin.add_backend("@NAME@", std::make_unique<Backend>());
}
