// SPDX-License-Identifier: Apache-2.0
// What works by chance on a device that shares memory with the host, or has one stream, is found on the simulated one.
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <csignal>

#include "memory/device.hpp"
#include "support.hpp"
#include "support/error.hpp"

namespace misuse_test {

using namespace tessera::test;
namespace core = tessera::core;

namespace {

// The message of what `f` throws.
template <class F>
std::string said(F&& f) {
  try {
    f();
  } catch (const core::Error& error) {
    return error.code() + " " + error.message();
  } catch (const e::Error& error) {
    return error.code() + " " + error.message();
  }
  return "";
}

struct OnDevice {
  core::Device& device;
  tsr_stream* stream;
  explicit OnDevice(const char* name) : device(core::device(e::device(name))), stream(device.make_stream()) {}
  ~OnDevice() { device.destroy_stream(stream); }
};

}  // namespace

TEST_CASE("a host that follows a device's address ends in a fault") {
  (void)sim();
  OnDevice d("sim:0");
  void* const p = d.device.allocate(64, d.stream);
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    const char byte = *static_cast<volatile const char*>(p);
    _exit(byte == 0 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGSEGV);
  d.device.free(p, 64, d.stream);
  d.device.synchronize(d.stream);
}

TEST_CASE("memory that was freed is not used again") {
  (void)sim();
  OnDevice d("sim:0");
  const e::Tensor host = numbers({16}, 3);
  void* const p = d.device.allocate(64, d.stream);
  d.device.copy(p, host.data(), 64, TSR_COPY_TO_DEVICE, d.stream);
  d.device.free(p, 64, d.stream);
  const std::string before = said([&] {
    d.device.copy(p, host.data(), 64, TSR_COPY_TO_DEVICE, d.stream);
    d.device.synchronize(d.stream);
  });
  CHECK(before.find("device sim: a copy on sim:0 was given memory that is not allocated, or was freed") != std::string::npos);
  d.device.synchronize(d.stream);
  // Also once the stream has come to the free.
  const std::string after = said([&] {
    d.device.copy(p, host.data(), 64, TSR_COPY_TO_DEVICE, d.stream);
    d.device.synchronize(d.stream);
  });
  CHECK(after == before);
}

TEST_CASE("work does not go to a stream of another device") {
  (void)sim();
  OnDevice zero("sim:0"), one("sim:1");
  const e::Tensor host = numbers({16}, 3);
  void* const p = zero.device.allocate(64, zero.stream);
  const std::string text = said([&] { zero.device.copy(p, host.data(), 64, TSR_COPY_TO_DEVICE, one.stream); });
  CHECK(text.find("device sim, copy: expected a stream of the same device") != std::string::npos);
  zero.device.free(p, 64, zero.stream);
  zero.device.synchronize(zero.stream);
}

}  // namespace misuse_test
