// SPDX-License-Identifier: Apache-2.0
// tessera.Tensor, and tensors of other libraries by DLPack.
#include <complex>
#include <cstring>
#include <memory>

#include "common.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::python {

namespace {

enum DlCode : uint8_t {
  kInt = 0,
  kUInt = 1,
  kFloat = 2,
  kBfloat = 4,
  kComplex = 5,
  kBool = 6,
  kE4M3FN = 10,
  kE4M3FNUZ = 11,
  kE5M2 = 12,
  kE5M2FNUZ = 13,
  kE8M0 = 14,
  kE2M1 = 17
};

constexpr const char *kCapsule = "dltensor", *kUsed = "used_dltensor", *kVersioned = "dltensor_versioned",
                     *kUsedVersioned = "used_dltensor_versioned";

// By code and bits; 0: there is none. Every tensor of every call is looked up here.
struct Dtypes {
  static constexpr size_t kCodes = 32, kBits = 129;
  uint8_t of[kCodes][kBits] = {};
  Dtypes() {
    for (uint32_t d = TSR_DTYPE_COUNT - 1; d >= 1; --d) {
      const dl::DataType mine = dl_dtype(d);
      of[mine.code][mine.bits] = static_cast<uint8_t>(d);
    }
  }
};

uint32_t dtype_of(dl::DataType t) {
  static const Dtypes known;
  if (t.lanes == 1 && t.code < Dtypes::kCodes && t.bits < Dtypes::kBits)
    if (const uint32_t d = known.of[t.code][t.bits]) return d;
  raise(PyExc_BufferError, "DLPack: dtype with code " + std::to_string(t.code) + ", " + std::to_string(t.bits) + " bits and " +
                               std::to_string(t.lanes) + " lanes has no counterpart in Tessera");
}

// Of a kind with several devices: found by name once, for every call asks.
tsr_device device_of(const char* kind, int32_t index) {
  struct Known {
    const char* kind;
    int32_t index;
    tsr_device device;
  };
  static std::vector<Known> known;  // under the interpreter's lock
  for (const Known& k : known)
    if (k.index == index && k.kind == kind) return k.device;
  const tsr_device found = api().host->core->device_id((kind + std::string(":") + std::to_string(index)).c_str());
  known.push_back({kind, index, found});
  return found;
}

tsr_device device_of(dl::Device d) {
  static const char *const kCudaName = "cuda", *const kHipName = "hip";
  switch (d.type) {
    case dl::kCpu:
    case dl::kCudaHost:
    case dl::kRocmHost: return 0;
    case dl::kCuda: return device_of(kCudaName, d.id);
    case dl::kRocm: return device_of(kHipName, d.id);
    default:
      raise(PyExc_BufferError,
            "DLPack: device type " + std::to_string(d.type) + " is unknown to Tessera; copy the tensor to the CPU");
  }
}

PyObject* new_tensor(PyTypeObject* type, PyObject*, PyObject*) {
  return guarded([&] {
    if (type == module().tensor)
      raise(PyExc_TypeError, "tensors are made by tessera.tensor, tessera.zeros, tessera.from_dlpack");
    return make<TensorHolder>(type, nullptr);
  });
}

template <class ManagedTensor>
void release_export(ManagedTensor* m) {
  api().tensor_release(static_cast<tsr_tensor_handle*>(m->ctx));
  delete m;
}

dl::Tensor dl_tensor(const tsr_tensor& t) {
  return {t.data,
          dl_device(t.device),
          static_cast<int32_t>(t.rank),
          dl_dtype(t.dtype),
          const_cast<int64_t*>(t.sizes),
          const_cast<int64_t*>(t.strides),
          0};
}

template <class ManagedTensor>
void free_capsule(PyObject* capsule) {
  const char* name = std::is_same_v<ManagedTensor, dl::Managed> ? kCapsule : kVersioned;
  if (!PyCapsule_IsValid(capsule, name)) return;  // its consumer has taken it over
  auto* m = static_cast<ManagedTensor*>(PyCapsule_GetPointer(capsule, name));
  m->deleter(m);
}

// __dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None)
PyObject* to_dlpack(PyObject* self, PyObject* args, PyObject* kwargs) {
  return guarded([&] {
    if (PyTuple_Size(args) != 0) raise(PyExc_TypeError, "__dlpack__ takes keyword arguments only");
    bool versioned = false;
    if (kwargs) {
      if (PyObject* v = PyDict_GetItemString(kwargs, "max_version"); v && v != Py_None)
        versioned = int_of(checked(PyTuple_GetItem(v, 0))) >= 1;
      if (PyObject* c = PyDict_GetItemString(kwargs, "copy"); c && PyObject_IsTrue(c) == 1)
        raise(PyExc_BufferError, "copies are not made here; copy the array that comes out");
      PyObject* d = PyDict_GetItemString(kwargs, "dl_device");
      if (d && d != Py_None) {
        const dl::Device mine = dl_device(handle_of(self)->desc.device);
        const std::vector<int64_t> asked = ints_of(d);
        if (asked.size() != 2 || asked[0] != mine.type || asked[1] != mine.id)
          raise(PyExc_BufferError, "the tensor lies on another device");
      }
    }
    tsr_tensor_handle* t = handle_of(self);
    const dl::Tensor described = dl_tensor(t->desc);
    const auto wrap = [&]<class ManagedTensor>(std::unique_ptr<ManagedTensor> m, const char* name) {
      m->tensor = described;
      m->ctx = t;
      m->deleter = release_export<ManagedTensor>;
      PyObject* capsule = checked(PyCapsule_New(m.get(), name, free_capsule<ManagedTensor>));
      api().tensor_retain(t);
      m.release();
      return capsule;
    };
    if (!versioned) return wrap(std::make_unique<dl::Managed>(), kCapsule);
    auto m = std::make_unique<dl::ManagedVersioned>();
    m->version = dl::kVersion;
    m->flags = 0;
    return wrap(std::move(m), kVersioned);
  });
}

PyObject* dlpack_device(PyObject* self, PyObject* const*, Py_ssize_t) {
  return guarded([&] {
    const dl::Device d = dl_device(handle_of(self)->desc.device);
    const int64_t pair[] = {d.type, d.id};
    return tuple_of(pair, 2);
  });
}

int64_t bytes_of(const tsr_tensor& t) {
  int64_t n = 1;
  for (uint32_t k = 0; k < t.rank; ++k) n *= t.sizes[k];
  return (n * dtype_bits(t.dtype) + 7) / 8;
}

PyObject* to_bytes(PyObject* self, PyObject* const*, Py_ssize_t) {
  return guarded([&] {
    tsr_tensor_handle* copy = nullptr;
    check(api().tensor_copy(handle_of(self), 0, &copy));
    const TensorHolder owner(copy);
    return checked(
        PyBytes_FromStringAndSize(static_cast<const char*>(copy->desc.data), static_cast<Py_ssize_t>(bytes_of(copy->desc))));
  });
}

tsr_device device_named(const std::string& name) { return api().host->core->device_id(name.c_str()); }

uint32_t dtype_named(const std::string& name) {
  for (uint32_t d = 1; d < TSR_DTYPE_COUNT; ++d)
    if (dtype_name(d) == name) return d;
  raise(PyExc_ValueError, "'" + name + "' is no dtype of Tessera");
}

// from_bytes(dtype, shape, bytes)
PyObject* from_bytes(PyObject*, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 3, 3, "from_bytes(dtype, shape, bytes)");
    const uint32_t dtype = dtype_named(text_of(args[0]));
    const std::vector<int64_t> sizes = ints_of(args[1]);
    char* bytes = nullptr;
    Py_ssize_t length = 0;
    if (PyBytes_AsStringAndSize(args[2], &bytes, &length) < 0) throw PythonError();
    tsr_tensor_handle* t = nullptr;
    check(api().tensor_create(dtype, static_cast<uint32_t>(sizes.size()), sizes.data(), 0, &t));
    Ref out(make<TensorHolder>(module().tensor, t));
    if (bytes_of(t->desc) != length)
      raise(PyExc_ValueError,
            "from_bytes: found " + std::to_string(length) + " bytes, expected " + std::to_string(bytes_of(t->desc)));
    if (length > 0) std::memcpy(t->desc.data, bytes, static_cast<size_t>(length));
    return out.release();
  });
}

uint32_t dtype_at(PyObject* number) {
  const int64_t d = int_of(number);
  if (d <= 0 || d >= TSR_DTYPE_COUNT) raise(PyExc_ValueError, "no dtype " + std::to_string(d));
  return static_cast<uint32_t>(d);
}

void store(const tsr_tensor& t, int64_t i, PyObject* number) {
  if (PyComplex_Check(number)) {
    store_from(t.dtype, t.data, i, std::complex<double>(PyComplex_RealAsDouble(number), PyComplex_ImagAsDouble(number)));
  } else if (PyFloat_Check(number)) {
    store_from(t.dtype, t.data, i, float_of(number));
  } else {
    int overflow = 0;
    const Ref index(checked(PyNumber_Index(number)));
    const int64_t v = PyLong_AsLongLongAndOverflow(index.get(), &overflow);
    if (overflow > 0 && t.dtype == TSR_U64) {
      const uint64_t wide = PyLong_AsUnsignedLongLong(index.get());
      if (PyErr_Occurred()) throw PythonError();
      store_from(t.dtype, t.data, i, wide);
      return;
    }
    if (overflow != 0) raise(PyExc_OverflowError, "a number does not fit 64 bits");
    store_from(t.dtype, t.data, i, v);
  }
}

// from_numbers(dtype, shape, numbers): numbers row-major
PyObject* from_numbers(PyObject*, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 3, 3, "from_numbers(dtype, shape, numbers)");
    const std::vector<int64_t> sizes = ints_of(args[1]);
    const Ref list = list_of(args[2], "numbers");
    tsr_tensor_handle* t = nullptr;
    check(api().tensor_create(dtype_at(args[0]), static_cast<uint32_t>(sizes.size()), sizes.data(), 0, &t));
    Ref out(make<TensorHolder>(module().tensor, t));
    int64_t count = 1;
    for (const int64_t s : sizes) count *= s;
    if (count != PyList_Size(list.get()))
      raise(PyExc_ValueError, "from_numbers: " + std::to_string(PyList_Size(list.get())) + " numbers for a shape of " +
                                  std::to_string(count) + " elements");
    for (int64_t i = 0; i < count; ++i) store(t->desc, i, PyList_GetItem(list.get(), i));
    return out.release();
  });
}

PyObject* number_at(const tsr_tensor& t, int64_t i) {
  if (is_bool(t.dtype)) return checked(PyBool_FromLong(load_as<double>(t.dtype, t.data, i) != 0));
  if (is_complex(t.dtype)) {
    const auto z = load_as<std::complex<double>>(t.dtype, t.data, i);
    return checked(PyComplex_FromDoubles(z.real(), z.imag()));
  }
  if (is_float(t.dtype)) return checked(PyFloat_FromDouble(load_as<double>(t.dtype, t.data, i)));
  if (is_unsigned_int(t.dtype)) return checked(PyLong_FromUnsignedLongLong(load_as<uint64_t>(t.dtype, t.data, i)));
  return checked(PyLong_FromLongLong(load_as<int64_t>(t.dtype, t.data, i)));
}

// numbers(): the elements, row-major, as a list of Python's numbers
PyObject* numbers(PyObject* self, PyObject* const*, Py_ssize_t) {
  return guarded([&] {
    tsr_tensor_handle* copy = nullptr;
    check(api().tensor_copy(handle_of(self), 0, &copy));
    const TensorHolder owner(copy);
    int64_t count = 1;
    for (uint32_t k = 0; k < copy->desc.rank; ++k) count *= copy->desc.sizes[k];
    Ref list(checked(PyList_New(count)));
    for (int64_t i = 0; i < count; ++i) checked(PyList_SetItem(list.get(), i, number_at(copy->desc, i)));
    return list.release();
  });
}

// result_type(tensors, scalars): the dtype that operands promote to, 0 where there is none; tensors: (dtype, rank), scalars:
// "bool", "int", "float", "complex"
PyObject* result_type(PyObject*, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 2, 2, "result_type(tensors, scalars)");
    ResultType r;
    const Ref tensors = list_of(args[0], "(dtype, rank)"), scalars = list_of(args[1], "kinds");
    for (Py_ssize_t i = 0; i < PyList_Size(tensors.get()); ++i) {
      const std::vector<int64_t> t = ints_of(PyList_GetItem(tensors.get(), i));
      if (t.size() != 2) raise(PyExc_TypeError, "result_type: a tensor is (dtype, rank)");
      r.add_tensor(static_cast<uint32_t>(t[0]), static_cast<uint32_t>(t[1]));
    }
    for (Py_ssize_t i = 0; i < PyList_Size(scalars.get()); ++i) {
      const std::string kind = text_of(PyList_GetItem(scalars.get(), i));
      r.add_scalar(kind == "bool"    ? ScalarKind::Bool
                   : kind == "int"   ? ScalarKind::Int
                   : kind == "float" ? ScalarKind::Float
                                     : ScalarKind::Complex);
    }
    return checked(PyLong_FromUnsignedLong(r.get()));
  });
}

// dtype_class(dtype): "float", "int", "uint", "bool", "complex"
PyObject* dtype_class(PyObject*, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 1, "dtype_class(dtype)");
    const uint32_t d = dtype_at(args[0]);
    return str(is_float(d)          ? "float"
               : is_signed_int(d)   ? "int"
               : is_unsigned_int(d) ? "uint"
               : is_bool(d)         ? "bool"
                                    : "complex");
  });
}

// empty(dtype, shape, device)
PyObject* empty(PyObject*, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 3, 3, "empty(dtype, shape, device)");
    const std::vector<int64_t> sizes = ints_of(args[1]);
    const tsr_device device = device_named(text_of(args[2]));
    tsr_tensor_handle* t = nullptr;
    check(api().tensor_create(dtype_at(args[0]), static_cast<uint32_t>(sizes.size()), sizes.data(), device, &t));
    return make<TensorHolder>(module().tensor, t);
  });
}

// copy(device): dense, on the device
PyObject* copy(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 1, "copy(device)");
    const tsr_device device = device_named(text_of(args[0]));
    tsr_tensor_handle* t = nullptr;
    check(api().tensor_copy(handle_of(self), device, &t));
    return make<TensorHolder>(module().tensor, t);
  });
}

// mark(dim, tsr_mark, min, max)
PyObject* mark(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 4, 4, "mark(dim, kind, min, max)");
    check(api().tensor_mark(handle_of(self), int_of(args[0]), static_cast<uint32_t>(int_of(args[1])), int_of(args[2]),
                            int_of(args[3])));
    return Py_NewRef(self);
  });
}

// strided(shape, strides, offset): another tensor over the same memory, without marks and gradients
PyObject* strided(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 2, 3, "strided(shape, strides, offset)");
    const std::vector<int64_t> sizes = ints_of(args[0]), strides = ints_of(args[1]);
    if (sizes.size() != strides.size()) raise(PyExc_ValueError, "strided: one stride per size");
    tsr_tensor_handle* view = nullptr;
    check(api().tensor_view(handle_of(self), n > 2 ? int_of(args[2]) : 0, static_cast<uint32_t>(sizes.size()), sizes.data(),
                            strides.data(), &view));
    return make<TensorHolder>(module().tensor, view);
  });
}

// from_dlpack(object): shares the object's memory.
PyObject* from_dlpack(PyObject*, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    expect_args(n, 1, 1, "from_dlpack(tensor)");
    if (PyObject_TypeCheck(args[0], module().tensor)) return Py_NewRef(args[0]);
    struct Owner {
      Borrowed borrowed;
      PyObject* object;
    };
    auto owner = std::make_unique<Owner>(Owner{Borrowed(args[0]), args[0]});
    tsr_tensor_handle* t = nullptr;
    check(api().tensor_wrap(
        &owner->borrowed.desc,
        [](void* p) {  // on whatever thread lets go of the last reference
          const PyGILState_STATE state = PyGILState_Ensure();
          auto* o = static_cast<Owner*>(p);
          PyObject* object = o->object;
          delete o;
          Py_DECREF(object);
          PyGILState_Release(state);
        },
        owner.get(), &t));
    Py_INCREF(owner->object);
    owner.release();
    return make<TensorHolder>(module().tensor, t);
  });
}

PyMethodDef methods[] = {{"__dlpack__", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(to_dlpack)),
                          METH_VARARGS | METH_KEYWORDS, "A DLPack capsule that shares the memory."},
                         method("__dlpack_device__", dlpack_device, "(device type, device number) of DLPack."),
                         method("numbers", numbers, "The elements, row-major, as a list of Python's numbers."),
                         method("copy", copy, "A dense copy on a device."),
                         method("mark", mark, "Says how compiled functions treat a dimension."),
                         method("strided", strided, "Another tensor over the same memory."),
                         method("tobytes", to_bytes, "The elements, dense and row-major, as bytes."),
                         {nullptr, nullptr, 0, nullptr}};

PyGetSetDef properties[] = {
    {"shape",
     [](PyObject* self, void*) -> PyObject* {
       return guarded([&] { return tuple_of(handle_of(self)->desc.sizes, handle_of(self)->desc.rank); });
     },
     nullptr, "Its sizes.", nullptr},
    {"strides",
     [](PyObject* self, void*) -> PyObject* {
       return guarded([&] { return tuple_of(handle_of(self)->desc.strides, handle_of(self)->desc.rank); });
     },
     nullptr, "In elements.", nullptr},
    {"dtype",
     [](PyObject* self, void*) -> PyObject* {
       return guarded([&] { return str(std::string(dtype_name(handle_of(self)->desc.dtype))); });
     },
     nullptr, "Its dtype's name: \"f32\".", nullptr},
    {"device",
     [](PyObject* self, void*) -> PyObject* {
       return guarded([&] { return str(api().host->core->device_name(handle_of(self)->desc.device)); });
     },
     nullptr, "Its device's name: \"cpu\".", nullptr},
    {"requires_grad",
     [](PyObject* self, void*) -> PyObject* {
       return guarded([&] { return checked(PyBool_FromLong(handle_of(self)->requires_grad != 0)); });
     },
     [](PyObject* self, PyObject* value, void*) -> int {
       const Ref done(guarded([&] {
         handle_of(self)->requires_grad = value && checked(PyObject_IsTrue(value)) ? 1 : 0;
         return Py_NewRef(Py_None);
       }));
       return done ? 0 : -1;
     },
     "Whether gradients are wanted of it; part of every guard.", nullptr},
    {"_record",
     [](PyObject* self, void*) -> PyObject* {
       PyObject* record = value_of<TensorHolder>(self).record.get();
       return Py_NewRef(record ? record : Py_None);
     },
     [](PyObject* self, PyObject* value, void*) -> int {
       Ref now = !value || value == Py_None ? Ref() : Ref::share(value);
       std::swap(value_of<TensorHolder>(self).record, now);
       return 0;
     },
     "What is known of its gradient: tracing/backward.py.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMethodDef functions[] = {method("from_numbers", from_numbers, "A tensor of this dtype and shape from numbers."),
                           method("result_type", result_type, "The dtype that operands promote to."),
                           method("dtype_class", dtype_class, "The kind of a dtype."),
                           method("empty", empty, "A tensor of this dtype and shape with any contents."),
                           method("from_bytes", from_bytes, "A tensor of this dtype and shape from row-major bytes."),
                           method("from_dlpack", from_dlpack, "A tensor that shares the memory of another library's."),
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool is_dense(const tsr_tensor& t) {
  int64_t expected = 1;
  for (uint32_t k = t.rank; k-- > 0;) {
    if (t.sizes[k] == 0) return true;
    if (t.sizes[k] != 1 && t.strides[k] != expected) return false;
    expected *= t.sizes[k];
  }
  return true;
}

tsr_tensor_handle* handle_of(PyObject* self) {
  const TensorHolder& t = value_of<TensorHolder>(self, module().tensor, "a tessera.Tensor");
  if (t.handle) return t.handle;
  // Host code wants the memory of a tensor that is being captured. It keeps what was read.
  const Ref read(checked(PyObject_CallMethod(self, "_memory", nullptr)));
  return value_of<TensorHolder>(read.get(), module().tensor, "a tensor that has been read").handle;
}

dl::DataType dl_dtype(uint32_t dtype) {
  const auto bits = static_cast<uint8_t>(dtype_bits(dtype));
  const auto code = [&]() -> uint8_t {
    switch (dtype) {
      case TSR_F64:
      case TSR_F32:
      case TSR_F16: return kFloat;
      case TSR_BF16: return kBfloat;
      case TSR_F8E4M3FN: return kE4M3FN;
      case TSR_F8E4M3FNUZ: return kE4M3FNUZ;
      case TSR_F8E5M2: return kE5M2;
      case TSR_F8E5M2FNUZ: return kE5M2FNUZ;
      case TSR_F8E8M0: return kE8M0;
      case TSR_F4E2M1: return kE2M1;
      case TSR_BOOL: return kBool;
      case TSR_C64:
      case TSR_C128: return kComplex;
      default: return is_signed_int(dtype) ? kInt : kUInt;
    }
  };
  return {code(), bits, 1};
}

dl::Device dl_device(tsr_device device) {
  if (device == 0) return {dl::kCpu, 0};
  const std::string name = api().host->core->device_name(device);
  const size_t colon = name.find(':');
  const std::string kind = name.substr(0, colon);
  const int32_t index = colon == std::string::npos ? 0 : std::stoi(name.substr(colon + 1));
  if (kind == "cuda") return {dl::kCuda, index};
  if (kind == "hip") return {dl::kRocm, index};
  raise(PyExc_BufferError, "DLPack has no number for device '" + name + "'");
}

void describe(const dl::Tensor& from, tsr_tensor& to) {
  to.data = from.data ? static_cast<char*>(from.data) + from.byte_offset : nullptr;
  to.dtype = dtype_of(from.dtype);
  to.rank = static_cast<uint32_t>(from.ndim);
  to.sizes = from.shape;
  to.strides = from.strides;
  to.device = device_of(from.device);
  to.flags = 0;
}

const dl::Exchange* exchange_of(PyTypeObject* type) {
  struct Known {
    PyTypeObject* type;
    const dl::Exchange* exchange;
  };
  static std::vector<Known> known;  // under the interpreter's lock; types are kept
  for (const Known& k : known)
    if (k.type == type) return k.exchange;
  const dl::Exchange* exchange = nullptr;
  const Ref capsule(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__"));
  if (capsule && PyCapsule_IsValid(capsule.get(), dl::Exchange::kCapsule)) {
    auto* header = static_cast<dl::ExchangeHeader*>(PyCapsule_GetPointer(capsule.get(), dl::Exchange::kCapsule));
    while (header && header->version.major != dl::kVersion.major) header = header->previous;
    exchange = reinterpret_cast<const dl::Exchange*>(header);
    if (exchange && !exchange->borrow) exchange = nullptr;
  }
  PyErr_Clear();
  constexpr size_t kMost = 64;
  if (known.size() < kMost) {
    Py_INCREF(type);
    known.push_back({type, exchange});
  }
  return exchange;
}

Borrowed::Borrowed(PyObject* object) {
  if (PyObject_TypeCheck(object, module().tensor)) {
    keep_ = Ref::share(object);
    desc = handle_of(object)->desc;
    return;
  }
  if (const dl::Exchange* x = exchange_of(Py_TYPE(object))) {
    dl::Tensor t{};
    checked(x->borrow(object, &t));
    describe(t, desc);
    return;
  }
  const Ref function(PyObject_GetAttrString(object, "__dlpack__"));
  if (!function) {
    PyErr_Clear();
    const Ref name(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), "__name__"));
    raise(PyExc_TypeError, "expected a tensor that speaks DLPack (__dlpack__), found " +
                               (name ? text_of(name.get()) : std::string("an object")));
  }
  const Ref none(checked(PyTuple_New(0)));
  const Ref kwargs(checked(Py_BuildValue("{s:(ii)}", "max_version", 1, 0)));
  keep_ = Ref(PyObject_Call(function.get(), none.get(), kwargs.get()));
  if (!keep_) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw PythonError();
    PyErr_Clear();  // a library that knows no versions
    keep_ = Ref(checked(PyObject_CallNoArgs(function.get())));
  }
  if (PyCapsule_IsValid(keep_.get(), kVersioned)) {
    const auto* m = static_cast<dl::ManagedVersioned*>(PyCapsule_GetPointer(keep_.get(), kVersioned));
    if (m->version.major > dl::kVersion.major)
      raise(PyExc_BufferError, "DLPack " + std::to_string(m->version.major) + " is newer than Tessera");
    describe(m->tensor, desc);
  } else if (PyCapsule_IsValid(keep_.get(), kCapsule)) {
    describe(static_cast<dl::Managed*>(PyCapsule_GetPointer(keep_.get(), kCapsule))->tensor, desc);
  } else {
    raise(PyExc_BufferError, "__dlpack__ gave no DLPack capsule");
  }
  if (!desc.strides && desc.rank > 0) {
    strides_.resize(desc.rank);
    int64_t stride = 1;
    for (uint32_t k = desc.rank; k-- > 0; stride *= desc.sizes[k]) strides_[k] = stride;
    desc.strides = strides_.data();
  }
  if (is_dense(desc)) desc.flags = TSR_TENSOR_CONTIGUOUS;
}

void add_tensor(PyObject* m) {
  module().tensor = make_type<TensorHolder>(
      "tessera.Tensor", "A tensor of Tessera's; numpy.from_dlpack and torch.from_dlpack read it without a copy.", methods,
      properties, new_tensor, Py_TPFLAGS_BASETYPE);
  checked(PyModule_AddObjectRef(m, "Tensor", reinterpret_cast<PyObject*>(module().tensor)));
  checked(PyModule_AddFunctions(m, functions));
}

}  // namespace tessera::python
