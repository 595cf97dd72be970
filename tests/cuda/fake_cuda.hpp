// SPDX-License-Identifier: Apache-2.0
// A CUDA driver and an NVRTC made of the CPU, as one shared library, for tests on machines without a GPU. Device memory is a
// reservation that the host cannot read; work runs when it is queued; the kit's text for CUDA is compiled by the system's
// compiler and run by the kit's fibers, and checked as on sim. Calls without a current context, of another device's streams, or
// in a child process are refused as by the driver. Machine code of the real NVRTC loads too, but does nothing when it is
// launched.
//
// FAKE_CUDA in the environment, read when the library is initialised:
// "devices=2,version=13000,init=0,memory=256,sm=90,nvrtc=13,dry=0"
// dry=1: memory has addresses and no bytes, and nothing that is queued runs. So the memory of models that only fit a GPU is
// planned and counted.
#pragma once

#include <cstdint>

extern "C" {
// The call of that name fails with the result, when `after` more calls have gone well. Once.
using fake_cuda_fail_t = void(const char* name, int result, int after);
// How often a function of the driver was called; null: forgets all counts.
using fake_cuda_calls_t = uint64_t(const char* name);
// Bytes of device memory that are allocated.
using fake_cuda_used_t = uint64_t(int device);
// The ranges of NVTX since they were last forgotten, each "(name)"; what is open lacks its end. Valid until the next call.
using fake_cuda_ranges_t = const char*(int forget);
__attribute__((visibility("default"))) fake_cuda_fail_t fake_cuda_fail;
__attribute__((visibility("default"))) fake_cuda_calls_t fake_cuda_calls;
__attribute__((visibility("default"))) fake_cuda_used_t fake_cuda_used;
__attribute__((visibility("default"))) fake_cuda_ranges_t fake_cuda_ranges;
}
