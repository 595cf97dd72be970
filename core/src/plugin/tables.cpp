// SPDX-License-Identifier: Apache-2.0
#include "plugin/tables.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "plugin/plugin_host.hpp"

namespace tessera::core {
namespace {

struct Field {
  size_t offset;
  const char* name;
};

struct Spec {
  tsr_kind kind;
  size_t size, prefix;
  std::vector<Field> required;  // pointers that must not be null
};

#define TSR_FIELD(type, field) \
  Field { offsetof(type, field), #field }
#define TSR_THROUGH(type, field) (offsetof(type, field) + sizeof(type::field))

// The rows follow abi.h: a pointer that its comment allows to be NULL is not required.
const std::vector<Spec>& specs() {
  static const std::vector<Spec> all = {
      {TSR_OPSET, sizeof(tsr_opset), TSR_THROUGH(tsr_opset, file_stride), {TSR_FIELD(tsr_opset, prefix)}},
      {TSR_FRONTEND, sizeof(tsr_frontend), TSR_THROUGH(tsr_frontend, import), {TSR_FIELD(tsr_frontend, description)}},
      {TSR_PASS,
       sizeof(tsr_pass),
       TSR_THROUGH(tsr_pass, run),
       {TSR_FIELD(tsr_pass, summary), TSR_FIELD(tsr_pass, ensures), TSR_FIELD(tsr_pass, run)}},
      {TSR_PARTITIONER,
       sizeof(tsr_partitioner),
       TSR_THROUGH(tsr_partitioner, partition),
       {TSR_FIELD(tsr_partitioner, summary), TSR_FIELD(tsr_partitioner, partition)}},
      {TSR_DEVICE,
       sizeof(tsr_device_table),
       TSR_THROUGH(tsr_device_table, host_free),
       {TSR_FIELD(tsr_device_table, name), TSR_FIELD(tsr_device_table, info), TSR_FIELD(tsr_device_table, alloc),
        TSR_FIELD(tsr_device_table, free), TSR_FIELD(tsr_device_table, copy), TSR_FIELD(tsr_device_table, fill),
        TSR_FIELD(tsr_device_table, stream_create), TSR_FIELD(tsr_device_table, stream_destroy),
        TSR_FIELD(tsr_device_table, stream_synchronize), TSR_FIELD(tsr_device_table, event_create),
        TSR_FIELD(tsr_device_table, event_destroy), TSR_FIELD(tsr_device_table, event_record),
        TSR_FIELD(tsr_device_table, event_wait), TSR_FIELD(tsr_device_table, event_query),
        TSR_FIELD(tsr_device_table, event_synchronize), TSR_FIELD(tsr_device_table, event_elapsed),
        TSR_FIELD(tsr_device_table, host_alloc), TSR_FIELD(tsr_device_table, host_free)}},
      {TSR_BACKEND,
       sizeof(tsr_backend),
       TSR_THROUGH(tsr_backend, compile),
       {TSR_FIELD(tsr_backend, device), TSR_FIELD(tsr_backend, claim), TSR_FIELD(tsr_backend, compile)}},
      {TSR_EXECUTOR,
       sizeof(tsr_executor),
       TSR_THROUGH(tsr_executor, release),
       {TSR_FIELD(tsr_executor, device), TSR_FIELD(tsr_executor, prepare), TSR_FIELD(tsr_executor, run),
        TSR_FIELD(tsr_executor, release)}},
      {TSR_STORE,
       sizeof(tsr_store),
       TSR_THROUGH(tsr_store, list),
       {TSR_FIELD(tsr_store, get), TSR_FIELD(tsr_store, put), TSR_FIELD(tsr_store, remove), TSR_FIELD(tsr_store, list)}},
  };
  return all;
}

const Spec& spec_of(tsr_kind kind) {
  return *std::find_if(specs().begin(), specs().end(), [&](const Spec& s) { return s.kind == kind; });
}

bool is_null(const std::byte* table, size_t offset) {
  const void* p = nullptr;
  std::memcpy(&p, table + offset, sizeof p);
  return p == nullptr;
}

// Elements of `stride` bytes become elements of T, zero-filled; null when there are none.
template <class T>
const T* copy_array(const T* items, size_t count, size_t stride, TableCopy* copy) {
  if (count == 0) return nullptr;
  auto bytes = std::make_unique<std::byte[]>(count * sizeof(T));
  for (size_t i = 0; i < count; ++i)
    std::memcpy(bytes.get() + i * sizeof(T), TSR_AT(T, items, stride, i), std::min(stride, sizeof(T)));
  const T* out = reinterpret_cast<const T*>(bytes.get());
  copy->arrays.push_back(std::move(bytes));
  return out;
}

void check_opset(const std::string& factory, TableCopy* copy, std::vector<TableProblem>* problems) {
  auto& set = *reinterpret_cast<tsr_opset*>(copy->bytes.get());
  const auto problem = [&](const std::string& what) { problems->push_back({"TSR-P044", factory + ": " + what}); };
  if (set.num_files > 0 && (!set.files || set.file_stride < sizeof(tsr_record_file)))
    return problem("files is null or file_stride " + std::to_string(set.file_stride) + " is below " +
                   std::to_string(sizeof(tsr_record_file)));
  constexpr size_t impl_prefix = TSR_THROUGH(tsr_op_impl, compute);
  if (set.num_impls > 0 && (!set.impls || set.impl_stride < impl_prefix))
    return problem("impls is null or impl_stride " + std::to_string(set.impl_stride) + " is below " +
                   std::to_string(impl_prefix));
  set.files = copy_array(set.files, set.num_files, set.file_stride, copy);
  set.file_stride = sizeof(tsr_record_file);
  set.impls = copy_array(set.impls, set.num_impls, set.impl_stride, copy);
  set.impl_stride = sizeof(tsr_op_impl);
  for (size_t i = 0; i < set.num_files; ++i)
    if (!set.files[i].name || !set.files[i].text) problem("files[" + std::to_string(i) + "] has a null name or text");
  for (size_t i = 0; i < set.num_impls; ++i)
    if (!set.impls[i].op) problem("impls[" + std::to_string(i) + "].op is null");
}

void check_frontend(const std::string& factory, const tsr_frontend& f, std::vector<TableProblem>* problems) {
  if (!f.import && !f.capture) problems->push_back({"TSR-P044", factory + ": both import and capture are null"});
  if (f.num_extensions > 0 && !f.extensions)
    problems->push_back({"TSR-P044", factory + ": extensions is null"});
  else if (std::any_of(f.extensions, f.extensions + f.num_extensions, [](const char* e) { return e == nullptr; }))
    problems->push_back({"TSR-P044", factory + ": extensions holds a null"});
}

}  // namespace

bool read_prefix(const void* source, size_t prefix, size_t size, void* out, size_t* found) {
  std::memset(out, 0, size);
  std::memcpy(found, source, sizeof *found);
  if (*found < prefix) return false;
  std::memcpy(out, source, std::min(*found, size));
  return true;
}

TableCopy copy_table(tsr_kind kind, const std::string& factory, const void* table, std::vector<TableProblem>* problems) {
  const Spec& spec = spec_of(kind);
  TableCopy copy;
  copy.bytes = std::make_unique<std::byte[]>(spec.size);
  size_t found = 0;
  if (!read_prefix(table, spec.prefix, spec.size, copy.bytes.get(), &found)) {
    problems->push_back({"TSR-P043", factory + ": the table's struct_size is " + std::to_string(found) +
                                         ", expected at least " + std::to_string(spec.prefix)});
    return copy;
  }
  const size_t before = problems->size();
  for (const Field& f : spec.required)
    if (is_null(copy.bytes.get(), f.offset)) problems->push_back({"TSR-P044", factory + ": " + f.name + " is null"});
  if (problems->size() != before) return copy;
  if (kind == TSR_OPSET) check_opset(factory, &copy, problems);
  if (kind == TSR_FRONTEND) check_frontend(factory, *reinterpret_cast<const tsr_frontend*>(copy.bytes.get()), problems);
  // The reader's view: everything is there now.
  const size_t full = spec.size;
  std::memcpy(copy.bytes.get(), &full, sizeof full);
  return copy;
}

}  // namespace tessera::core
