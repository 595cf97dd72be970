// SPDX-License-Identifier: Apache-2.0
// A frame: one piece of host code that is compiled on its own, as messages name it. A compiled function owns one, and so does
// every continuation after a graph break.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::core {

// "0/1": the second compile of frame 0; "0/1_2": its third attempt, after two restarts.
struct CompileId {
  int64_t frame = -1;
  int64_t compile = 0;
  int64_t attempt = 0;
  std::string text() const;
};

// Not thread-safe but for id(): whoever owns the frame calls the rest under the lock of its misses.
class Frame {
 public:
  struct Limits {
    int64_t recompile = 8;      // entries of this frame
    int64_t accumulated = 256;  // compiles of all frames that share this one's code, in the whole process
  };

  Frame(std::string name, std::string file, uint32_t line, Limits limits);
  ~Frame();
  Frame(const Frame&) = delete;

  const std::string& name() const { return name_; }
  const std::string& file() const { return file_; }
  uint32_t line() const { return line_; }
  std::string place() const;  // "model.cpp:12"; of a model file its path
  const Limits& limits() const { return limits_; }

  // Frames are numbered at their first compile, and from 0 again once no frame has a number. -1: none yet.
  int64_t id() const { return id_; }
  void acquire();
  // As if it had never been compiled.
  void reset();

  // The compile that comes next. Its number is used up by finish(), not by an attempt that fails.
  CompileId next(int64_t attempt = 0) const { return {id_, compiles_, attempt}; }
  CompileId compile(int64_t number) const { return {id_, number, 0}; }
  void finish();
  int64_t compiles() const { return compiles_; }
  // Compiles of every frame of this name and place since the process began, or since each was reset.
  int64_t accumulated() const;

  // Of a frame that is about to be compiled: how many of this name and place have been in this process, itself included; 0 when
  // it has been counted before. More than a few mean that a compiled function is made again and again instead of once.
  int64_t define();

  bool warned = false;  // of a limit

 private:
  std::string name_, file_;
  uint32_t line_;
  Limits limits_;
  int64_t id_ = -1, compiles_ = 0;
  bool defined_ = false;
};

}  // namespace tessera::core
