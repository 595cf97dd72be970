// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "api/api.hpp"
#include "memory/stream.hpp"
#include "run/executable.hpp"
#include "run/run_context.hpp"

namespace tessera::core::api {

namespace {

Device& streamed(tsr_device id) {
  Device& d = device(id);
  if (id == kCpu) throw user_error("TSR-R040", "the host ('cpu') has no streams", "name a device such as 'null:0'");
  return d;
}

Stream& of(Device& d, tsr_stream_handle* s) {
  Stream& stream = *Stream::from(s);
  if (&stream.device() != &d)
    throw user_error("TSR-R040", "a stream of device '" + stream.device().name() + "' was given for device '" + d.name() + "'",
                     "pass a stream that was made for '" + d.name() + "'");
  return stream;
}

tsr_error* run_with(tsr_executable* e, const tsr_run_options* options, tsr_tensor_handle* const* inputs, size_t num_inputs,
                    tsr_tensor_handle** outputs, size_t num_outputs) noexcept {
  return guarded([&] {
    required(e, "executable");
    if (num_inputs > 0) required(inputs, "inputs");
    if (num_outputs > 0) required(outputs, "outputs");
    RunContext context;
    std::vector<Stream*> streams;
    if (options && TSR_HAS(options, tsr_run_options, num_streams)) {
      if (options->num_streams > 0) required(options->streams, "streams");
      for (size_t i = 0; i < options->num_streams; ++i) {
        Stream* const s = Stream::from(&required(options->streams[i], "a stream"));
        for (const Stream* other : streams)
          if (&other->device() == &s->device())
            throw user_error("TSR-R040", "two streams were given for device '" + s->device().name() + "'",
                             "pass at most one stream per device");
        streams.push_back(s);
      }
      context.streams = streams;
    }
    if (options && TSR_HAS(options, tsr_run_options, allocator) && options->allocator) {
      required(options->allocator->alloc, "allocator.alloc");
      required(options->allocator->free, "allocator.free");
      context.allocator = options->allocator;
    }
    reinterpret_cast<Executable*>(e)->run({inputs, num_inputs}, {outputs, num_outputs}, false, &context);
  });
}

}  // namespace

void stream_functions(tsr_api& t) {
  t.stream_create = [](tsr_device d, tsr_stream_handle** out) noexcept {
    return guarded([&] { required(out, "the stream to be returned") = &Stream::create(streamed(d)); });
  };
  t.stream_wrap = [](tsr_device d, void* native, tsr_stream_handle** out) noexcept {
    return guarded([&] { required(out, "the stream to be returned") = &Stream::wrap(streamed(d), native); });
  };
  t.stream_destroy = [](tsr_stream_handle* s) noexcept {
    if (s) Stream::destroy(*Stream::from(s));
  };
  t.stream_device = [](const tsr_stream_handle* s) noexcept -> tsr_device {
    return s ? static_cast<const Stream*>(s)->device().id() : kCpu;
  };
  t.current_stream = [](tsr_device d, tsr_stream_handle** out) noexcept {
    return guarded([&] { required(out, "the stream to be returned") = &current_stream(streamed(d)); });
  };
  t.set_current_stream = [](tsr_device d, tsr_stream_handle* s, tsr_stream_handle** before) noexcept {
    return guarded([&] {
      Device& device = streamed(d);
      Stream& old = set_current_stream(device, s ? &of(device, s) : nullptr);
      if (before) *before = &old;
    });
  };
  t.stream_wait = [](tsr_stream_handle* waiter, tsr_stream_handle* other) noexcept {
    return guarded([&] {
      Stream& w = *Stream::from(&required(waiter, "the stream that waits"));
      w.wait(Stream::from(&required(other, "the stream that is waited for"))->point(), Wait::kUser);
    });
  };
  t.synchronize = [](tsr_device d, tsr_stream_handle* s) noexcept {
    return guarded([&] {
      if (d == kCpu) return;  // nothing is queued there
      Device& device = streamed(d);
      if (!s) return synchronize_device(device);
      Stream& stream = of(device, s);
      stream.synchronize(Wait::kUser);
      stream.raise_fault();
    });
  };
  t.run_with = run_with;
}

}  // namespace tessera::core::api
