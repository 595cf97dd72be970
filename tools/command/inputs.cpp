// SPDX-License-Identifier: Apache-2.0
#include "inputs.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <numbers>
#include <optional>
#include <set>

#include "json.hpp"
#include "npz/elements.hpp"
#include "npz/npz.hpp"
#include "tessera/dtypes.hpp"
#include "text.hpp"

namespace tessera::command {
namespace {

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
class Random {
 public:
  Random(uint64_t seed, std::string_view name) : state_(seed * 0x9e3779b97f4a7c15ull) {
    uint64_t h = 0xcbf29ce484222325ull;  // FNV-1a: streams of different inputs are unrelated
    for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
    state_ ^= h;
  }
  uint64_t bits() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }  // [0, 1)
  // lo..hi inclusive; unbiased by rejection.
  int64_t integer(int64_t lo, int64_t hi) {
    const uint64_t span = static_cast<uint64_t>(hi) - static_cast<uint64_t>(lo) + 1;
    if (span == 0) return static_cast<int64_t>(bits());
    const uint64_t limit = span * (std::numeric_limits<uint64_t>::max() / span);
    uint64_t b;
    do b = bits();
    while (b >= limit);
    return static_cast<int64_t>(static_cast<uint64_t>(lo) + b % span);
  }
  double normal() {  // Box and Muller, 1958
    if (spare_) {
      const double v = *spare_;
      spare_.reset();
      return v;
    }
    const double radius = std::sqrt(-2 * std::log(1 - uniform())), angle = 2 * std::numbers::pi * uniform();
    spare_ = radius * std::sin(angle);
    return radius * std::cos(angle);
  }

 private:
  uint64_t state_;
  std::optional<double> spare_;
};

struct Range {
  double lo, hi;
  std::optional<int64_t> int_lo, int_hi;  // as integers, when they are
  std::string text;
};

Range parse_range(const std::string& name, const std::string& text) {
  const auto parts = split(text, ':');
  const auto lo = parts.size() == 2 ? parse_number(parts[0]) : std::nullopt,
             hi = parts.size() == 2 ? parse_number(parts[1]) : std::nullopt;
  if (!lo || !hi)
    throw usage_error("TSR-U004", "--range " + name + ": found " + quote(text) + ", expected LO:HI, such as 0:9 or -1:1");
  if (*lo > *hi)
    throw usage_error("TSR-U005", "--range " + name + ": found " + quote(text) + ", whose end lies below its beginning");
  return {*lo, *hi, parse_int(parts[0]), parse_int(parts[1]), text};
}

// The integers of a dtype, as far as int64_t reaches.
std::pair<int64_t, int64_t> limits(uint32_t dtype) {
  const int bits = dtype_bits(dtype);
  if (is_bool(dtype)) return {0, 1};
  if (is_signed_int(dtype))
    return {bits == 64 ? INT64_MIN : -(int64_t{1} << (bits - 1)), bits == 64 ? INT64_MAX : (int64_t{1} << (bits - 1)) - 1};
  return {0, bits == 64 ? INT64_MAX : (int64_t{1} << bits) - 1};
}

void fill_integers(const ValueInfo& in, const Range* range, int64_t count, void* data, Random& random) {
  const auto [min, max] = limits(in.dtype);
  int64_t lo = 0, hi = std::min<int64_t>(9, max);
  if (range) {
    if (!range->int_lo || !range->int_hi)
      throw usage_error("TSR-U004", "--range " + in.label() + ": found " + quote(range->text) +
                                        ", expected integers for an input of " + std::string(dtype_name(in.dtype)));
    lo = *range->int_lo;
    hi = *range->int_hi;
    if (lo < min || hi > max)
      throw usage_error("TSR-U005", "--range " + in.label() + ": found " + range->text + ", expected a part of " +
                                        std::to_string(min) + ":" + std::to_string(max) + ", the values of " +
                                        std::string(dtype_name(in.dtype)));
  }
  for (int64_t i = 0; i < count; ++i) store_from(in.dtype, data, i, random.integer(lo, hi));
}

void fill_floats(const ValueInfo& in, const Range* range, int64_t count, void* data, Random& random) {
  // Scales have no sign and no zero: normal numbers would nearly all be NaN.
  const bool scale = in.dtype == TSR_F8E8M0;
  uint32_t dtype = in.dtype;
  if (is_complex(dtype)) {
    dtype = dtype == TSR_C64 ? TSR_F32 : TSR_F64;
    count *= 2;
  }
  const auto draw = [&] {
    if (range) return range->lo + (range->hi - range->lo) * random.uniform();
    return scale ? std::exp2(static_cast<double>(random.integer(-2, 2))) : random.normal();
  };
  if (dtype == TSR_F32) {  // weights of hundreds of millions are common
    for (auto *p = static_cast<float*>(data), *end = p + count; p != end; ++p) *p = static_cast<float>(draw());
    return;
  }
  for (int64_t i = 0; i < count; ++i) store_from(dtype, data, i, draw());
}

// Bytes as they are stored, so that a packed last byte has defined unused bits.
void clear(const embed::Tensor& t) {
  if (is_packed(t.dtype())) std::memset(t.data(), 0, static_cast<size_t>(storage_bytes(t.dtype(), t.elements())));
}

// The dense host tensor in the layout and on the device that the signature asks for.
embed::Tensor placed(const embed::Tensor& dense, const Signature& signature, const ValueInfo& in,
                     const std::vector<int64_t>& symbols) {
  if (!in.strides.empty() && !is_packed(in.dtype) && in.device == 0) {
    const std::vector<int64_t> strides = signature.evaluate(in.strides, symbols, "input " + quote(in.label()));
    const auto sizes = dense.sizes();
    int64_t span = 1;
    for (size_t d = 0; d < strides.size(); ++d) {
      int64_t reach = 0;
      if (sizes[d] == 0) {
        span = 1;
        break;
      }
      if (__builtin_mul_overflow(sizes[d] - 1, strides[d], &reach) || __builtin_add_overflow(span, reach, &span))
        throw usage_error("TSR-U006", "input " + quote(in.label()) + ": its strides reach beyond 2^63 elements");
    }
    const embed::Tensor base = embed::Tensor::create(in.dtype, std::vector<int64_t>{span});
    const auto size = static_cast<size_t>(dtype_bits(in.dtype) / 8);
    std::memset(base.data(), 0, static_cast<size_t>(span) * size);
    std::vector<int64_t> index(sizes.size());
    for (int64_t n = dense.elements(), i = 0; i < n; ++i) {
      int64_t rest = i, offset = 0;
      for (size_t d = sizes.size(); d-- > 0;) {
        offset += rest % sizes[d] * strides[d];
        rest /= sizes[d];
      }
      std::memcpy(static_cast<char*>(base.data()) + static_cast<size_t>(offset) * size,
                  static_cast<const char*>(dense.data()) + static_cast<size_t>(i) * size, size);
    }
    return base.view(0, sizes, strides);
  }
  return in.device == 0 ? dense : dense.copy_to(in.device);
}

struct Lack {               // what an import has to know and was not told
  std::string input, what;  // "rank", "sizes", "value"
};

struct FileArray {
  npz::Array array;
  std::string file;
};

// The arrays of all files. One that holds a single array gives it the file's own name for it (.pb), else its stem, unless NAME=
// says.
std::vector<FileArray> read_arrays(const InputArguments& arguments) {
  std::vector<FileArray> out;
  for (const std::string& argument : arguments.files) {
    const auto single = [](const std::string& f) { return f.ends_with(".npy") || f.ends_with(".pb"); };
    size_t equals = single(argument) ? argument.find('=') : argument.npos;
    for (size_t at = equals; at != argument.npos; at = argument.find('=', at + 1))  // names and paths may have one
      if (std::error_code none; std::filesystem::exists(argument.substr(at + 1), none)) {
        equals = at;
        break;
      }
    const std::string file = equals == argument.npos ? argument : argument.substr(equals + 1);
    std::vector<npz::Array> arrays;
    if (file.ends_with(".pb"))
      arrays.push_back(npz::read_tensor_proto(file));
    else
      arrays = npz::read(file);
    for (npz::Array& a : arrays) {
      if (equals != argument.npos) a.name = argument.substr(0, equals);
      out.push_back({std::move(a), file});
    }
  }
  return out;
}

}  // namespace

void InputArguments::add_to(Options& o) {
  o.list("inputs,i", "FILE", &files,
         "Arrays by input name: an .npz, or an .npy or .pb (ONNX TensorProto) as [NAME=]FILE. What no file gives is random.");
  o.integer("seed", "N", &seed, 0, INT64_MAX, "Seed of random inputs (default 0).");
  o.list("range", "NAME=LO:HI", &ranges,
         "Random values of one input: floats in [LO, HI), integers LO..HI. Default: normal; 0..9.");
  o.list(
      "fix", "NAME", &fixed,
      "Make this input a constant, with its value of --inputs. Inputs that shapes are computed from are constants as it is.");
  o.list("dim", "NAME=SIZE", &dims, "A size that the inputs do not tell. Default: its hint, else 8.");
}

int64_t Inputs::bytes() const {
  int64_t total = 0;
  for (const embed::Tensor& t : tensors) total += storage_bytes(t.dtype(), t.elements());
  return total;
}

namespace {

// The arrays of --inputs that --fix names.
std::vector<std::pair<std::string, embed::Tensor>> fixed_inputs(const InputArguments& arguments) {
  std::vector<std::pair<std::string, embed::Tensor>> out;
  if (arguments.files.empty())
    throw usage_error("TSR-U007", "--fix " + arguments.fixed[0] + ": no file gives its value", "name one with --inputs");
  const std::vector<FileArray> arrays = read_arrays(arguments);
  for (const std::string& name : arguments.fixed) {
    const auto found = std::find_if(arrays.begin(), arrays.end(), [&](const FileArray& a) { return a.array.name == name; });
    std::vector<std::string> names;
    for (const FileArray& a : arrays) names.push_back(a.array.name);
    if (found == arrays.end())
      throw usage_error(
          "TSR-U007",
          "--fix " + name + ": " + join(arguments.files) + " has no array " + quote(name) + did_you_mean(name, names),
          "it has " + join(names));
    const npz::Array* const array = &found->array;
    uint32_t dtype = TSR_F64;
    while (dtype < TSR_DTYPE_COUNT && npz::descr_of(dtype) != array->descr) ++dtype;
    if (dtype == TSR_DTYPE_COUNT || array->descr.starts_with("|V"))
      throw usage_error("TSR-U007", "--fix " + name + ": its element type " + quote(array->descr) + " names no dtype");
    const embed::Tensor t = embed::Tensor::create(dtype, array->shape);
    const std::vector<std::byte> bytes = npz::to_elements(*array, dtype, found->file);
    if (!bytes.empty()) std::memcpy(t.data(), bytes.data(), bytes.size());
    out.emplace_back(name, t);
  }
  return out;
}

// The inputs that the model's file declares, those of no rank with that of their array.
Signature declared_inputs(const embed::Graph& graph, const std::vector<Lack>& lacks, const InputArguments& arguments) {
  Signature declared(graph.tables());
  if (std::none_of(lacks.begin(), lacks.end(), [](const Lack& l) { return l.what == "rank"; })) return declared;
  const std::vector<FileArray> arrays = read_arrays(arguments);
  for (const Lack& lack : lacks) {
    if (lack.what != "rank") continue;
    const auto array =
        std::find_if(arrays.begin(), arrays.end(), [&](const FileArray& a) { return a.array.name == lack.input; });
    if (array == arrays.end())
      throw usage_error("TSR-U007",
                        "the model does not say the rank of its input " + quote(lack.input) + ", and no file gives it",
                        "name a file with it: --inputs");
    for (ValueInfo& in : declared.inputs)
      if (in.name == lack.input) in.sizes = array->array.shape;
  }
  return declared;
}

// Of the inputs that load_model() has made, those that are inputs still.
Inputs made_inputs(const Signature& signature, const InputArguments& arguments) {
  Inputs out;
  std::map<size_t, std::vector<int64_t>> shapes;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const auto& [tensor, given] = arguments.made.at(signature.inputs[i].name);
    out.tensors.push_back(tensor);
    out.from_file.push_back(given);
    shapes[i] = {tensor.sizes().begin(), tensor.sizes().end()};
  }
  out.symbols = signature.bind(shapes, {});
  return out;
}

struct CallTensors {
  std::vector<std::pair<std::string, embed::Tensor>> values,
      types;  // those that the user has given, and those that are made up
};

CallTensors tensors_of(const InputArguments& arguments) {
  CallTensors out;
  for (const auto& [name, input] : arguments.made) {
    const auto& [tensor, given] = input;
    (given ? out.values : out.types).emplace_back(name, tensor);
  }
  return out;
}

std::vector<Lack> lacks_of(const embed::Context::Loaded& loaded) {
  std::vector<Lack> out;
  const Json report = Json::parse(loaded.report);
  for (const Json& m : report["missing"]) out.push_back({m["input"], m["what"]});
  return out;
}

// Whether what a graph assumes about the sizes of its inputs holds with these values of its symbols.
bool keeps(const Signature& declared, const Json& assumed, const std::vector<int64_t>& symbols) {
  const auto holds = [](const std::string& relation, int64_t a, int64_t b) {
    if (relation == "==") return a == b;
    if (relation == "!=") return a != b;
    if (relation == "<") return a < b;
    if (relation == "<=") return a <= b;
    if (relation == ">") return a > b;
    if (relation == ">=") return a >= b;
    return b != 0 && (b == -1 || a % b == 0);
  };
  return std::all_of(assumed.begin(), assumed.end(), [&](const Json& x) {
    const auto a = declared.value_of(x["a"].get<tsr_dim>(), symbols), b = declared.value_of(x["b"].get<tsr_dim>(), symbols);
    return a && b && holds(x["relation"].get<std::string>(), *a, *b);
  });
}

}  // namespace

embed::Graph load_model(const embed::Context& context, const std::string& model, InputArguments& arguments) {
  if (!arguments.fixed.empty() && arguments.made.empty()) return context.load(model, fixed_inputs(arguments));
  if (arguments.made.empty()) {
    embed::Context::Loaded loaded = context.load_for(model, {});
    const Json report = Json::parse(loaded.report);
    const bool open = report["open"].get<bool>();
    if (loaded.graph && !open && report["assumed"].empty()) return std::move(*loaded.graph);
    const Signature declared = declared_inputs(loaded.graph ? *loaded.graph : *loaded.inputs, lacks_of(loaded), arguments);
    const Inputs inputs = make_inputs(declared, arguments);
    for (size_t i = 0; i < declared.inputs.size(); ++i) {
      const std::string& name = declared.inputs[i].name;
      const bool ranged = std::any_of(arguments.ranges.begin(), arguments.ranges.end(),
                                      [&](const std::string& r) { return r.starts_with(name + "="); });
      arguments.made.emplace(name, std::pair(inputs.tensors[i], inputs.from_file[i] || ranged));
    }
    if (loaded.graph && !open && keeps(declared, report["assumed"], inputs.symbols)) return std::move(*loaded.graph);
  }
  const CallTensors tensors = tensors_of(arguments);
  embed::Context::Loaded loaded = context.load_for(model, tensors.values, tensors.types);
  if (loaded.graph) return std::move(*loaded.graph);
  std::vector<std::string> names;
  for (const Lack& l : lacks_of(loaded)) names.push_back(quote(l.input));
  throw usage_error("TSR-U007", model + ": shapes are computed from the value of " + join(names) + ", which no file gives",
                    "name a file with it: --inputs; or say --range NAME=LO:HI where any such value will do");
}

Inputs make_inputs(const Signature& signature, const InputArguments& arguments) {
  if (!arguments.made.empty()) return made_inputs(signature, arguments);
  // Options first: a misspelt name must not cost the reading of a large file.
  const auto known = [&](const std::string& what, const std::string& name) -> const ValueInfo* {
    if (const ValueInfo* v = signature.find(name)) return v;
    std::vector<std::string> names = signature.labels();
    const std::string list = names.size() > 12 ? std::to_string(names.size()) + " inputs; see: tessera opt MODEL" : join(names);
    for (const ValueInfo& v : signature.inputs)
      if (!v.key.empty()) names.push_back(v.name);
    throw usage_error("TSR-U007", what + ": the model has no input " + quote(name) + did_you_mean(name, names),
                      "it has " + (list.empty() ? "none" : list));
  };
  std::map<const ValueInfo*, Range> ranges;
  for (const std::string& text : arguments.ranges) {
    const auto [name, value] = name_and_value("--range", text, "NAME=LO:HI");
    ranges[known("--range", name)] = parse_range(name, value);
  }
  std::map<std::string, int64_t> dims;
  for (const std::string& text : arguments.dims) {
    const auto [name, value] = name_and_value("--dim", text, "NAME=SIZE");
    const auto v = parse_int(value);
    if (!v) throw usage_error("TSR-U004", "--dim " + name + ": found " + quote(value) + ", expected an integer");
    if (*v < 0) throw usage_error("TSR-U005", "--dim " + name + ": found " + value + ", expected at least 0");
    dims[name] = *v;
  }

  const std::vector<FileArray> arrays = read_arrays(arguments);
  std::map<size_t, const FileArray*> files;
  std::map<size_t, std::vector<int64_t>> shapes;
  for (const FileArray& f : arrays) {
    const npz::Array& a = f.array;
    if (std::find(arguments.fixed.begin(), arguments.fixed.end(), a.name) != arguments.fixed.end()) continue;
    const auto index = static_cast<size_t>(known(f.file, a.name) - signature.inputs.data());
    if (!files.emplace(index, &f).second)
      throw usage_error("TSR-U007",
                        f.file + ": the input " + quote(signature.inputs[index].name) + " is given twice, as " +
                            quote(files[index]->array.name) + " and " + quote(a.name),
                        "keep one of the two arrays");
    shapes[index] = a.shape;
  }

  Inputs out;
  out.symbols = signature.bind(shapes, dims);
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const ValueInfo& in = signature.inputs[i];
    const auto file = files.find(i);
    const std::vector<int64_t> sizes = file == files.end()
                                           ? signature.evaluate(in.sizes, out.symbols, "input " + quote(in.label()))
                                           : file->second->array.shape;
    const embed::Tensor dense = embed::Tensor::create(in.dtype, sizes);
    if (file != files.end()) {
      const std::vector<std::byte> bytes = npz::to_elements(file->second->array, in.dtype, file->second->file);
      if (!bytes.empty()) std::memcpy(dense.data(), bytes.data(), bytes.size());
    } else {
      clear(dense);
      Random random(static_cast<uint64_t>(arguments.seed), in.label());
      const auto at = ranges.find(&in);
      const Range* range = at == ranges.end() ? nullptr : &at->second;
      if (is_float(in.dtype) || is_complex(in.dtype))
        fill_floats(in, range, dense.elements(), dense.data(), random);
      else
        fill_integers(in, range, dense.elements(), dense.data(), random);
    }
    out.tensors.push_back(placed(dense, signature, in, out.symbols));
    out.from_file.push_back(file != files.end());
  }
  return out;
}

std::vector<embed::Tensor> fresh(const Signature& signature, const Inputs& inputs) {
  std::vector<embed::Tensor> out;
  for (size_t i = 0; i < inputs.tensors.size(); ++i) {
    const ValueInfo& in = signature.inputs[i];
    const bool may_change = in.kind == TSR_INPUT_STATE || in.donated;
    out.push_back(may_change ? placed(inputs.tensors[i].copy_to(0), signature, in, inputs.symbols) : inputs.tensors[i]);
  }
  return out;
}

}  // namespace tessera::command
