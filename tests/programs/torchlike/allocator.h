// SPDX-License-Identifier: Apache-2.0
// Device memory with the behavior of PyTorch's allocators (c10). The caching allocator rounds to 512 bytes,
// and splits and joins blocks of 2 MiB and 20 MiB segments. It reuses a block at once for the stream that had
// the block, and for other streams after events. While a stream is captured, the allocator takes memory in
// relaxed mode, for a pool of the graph. The other allocator is the driver's pool, which retains all memory.
// Threads: one. Errors end the program.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tests/programs/torchlike/segments.h"

namespace ckpt::examples {

class Allocator {
 public:
  virtual ~Allocator() = default;
  Allocator() = default;
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;
  virtual CUdeviceptr allocate(std::uint64_t bytes, CUstream stream) = 0;
  // Records that another stream works with the block: the block is not reused before this work is done.
  virtual void used_by(CUdeviceptr at, CUstream stream) = 0;
  virtual void free(CUdeviceptr at) = 0;
  // Returns whether allocations during captures are possible. The driver's pool would turn memory into a node
  // of the graph, which no move can transfer.
  [[nodiscard]] virtual bool allocates_in_captures() const { return false; }
  // Between these calls, memory belongs to the graph.
  virtual void begin_capture() {}
  virtual void end_capture() {}
  virtual void empty_cache() {}
};

enum class Backing { kOwn, kExpandable };

class CachingAllocator final : public Allocator {
 public:
  CachingAllocator(Backing backing, CUdevice device);
  ~CachingAllocator() override;
  CUdeviceptr allocate(std::uint64_t bytes, CUstream stream) override;
  void used_by(CUdeviceptr at, CUstream stream) override { block_at(at).users.push_back(stream); }
  void free(CUdeviceptr at) override;
  [[nodiscard]] bool allocates_in_captures() const override { return true; }
  void begin_capture() override { capturing_ = true; }
  void end_capture() override { capturing_ = false; }
  void empty_cache() override;

 private:
  struct Block {
    std::uint64_t bytes;
    CUstream stream;
    bool is_graphs;
    bool is_taken = true;
    std::vector<CUstream> users;
    std::vector<CUevent> waits_for;
  };
  using Blocks = std::map<CUdeviceptr, Block>;
  // The blocks of one size class.
  struct Arena {
    std::unique_ptr<Segments> segments;
    Blocks blocks;
  };

  Arena& arena_of(std::uint64_t bytes) { return bytes <= kMiB ? small_ : large_; }
  Arena& arena_at(CUdeviceptr at) { return small_.blocks.contains(at) ? small_ : large_; }
  Block& block_at(CUdeviceptr at) { return arena_at(at).blocks.at(at); }
  Blocks::iterator best_fit(Arena& arena, std::uint64_t bytes, CUstream stream);
  Blocks::iterator add_memory(Arena& arena, std::uint64_t bytes, CUstream stream);
  static void split(Arena& arena, Blocks::iterator block, std::uint64_t bytes);
  static void make_free(Arena& arena, Blocks::iterator block);
  static bool can_join(const Arena& arena, Blocks::iterator first, Blocks::iterator second);
  static void empty(Arena& arena);
  void look_at_events();

  Arena small_;
  Arena large_;
  bool capturing_ = false;
};

class PoolAllocator final : public Allocator {
 public:
  explicit PoolAllocator(CUdevice device);
  CUdeviceptr allocate(std::uint64_t bytes, CUstream stream) override;
  void used_by(CUdeviceptr at, CUstream stream) override;
  void free(CUdeviceptr at) override;

 private:
  std::map<CUdeviceptr, CUstream> streams_;
};

}  // namespace ckpt::examples
