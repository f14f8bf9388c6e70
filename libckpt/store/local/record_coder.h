// SPDX-License-Identifier: Apache-2.0
// Names, packs and unpacks the content of records, with its own working memory. Content is packed if a sample
// shows that at least a tenth is saved. Byte planes are used for numbers (libckpt/datapath/codec), and zstd
// for repetitions. Other content is stored unpacked.
//
// Threads: an object belongs to one thread at a time; RecordCoders lends them. Errors: unpack() returns
// kCorrupt for anything that does not unpack to exactly out.size() bytes. Sizes are bytes.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/store/local/content.h"
#include "libckpt/store/local/format.h"

namespace ckpt::checkpoint_store {

struct Packed {
  Packing packing = Packing::kRaw;
  std::span<const std::byte>
      payload;  // the plain bytes themselves, or the coder's buffer, whose content is valid until the next
                // call of the coder
};

class RecordCoder {
 public:
  // Creates a coder for contents of at most `max_bytes`.
  static Result<std::unique_ptr<RecordCoder>> create(const ContentKey& key, std::size_t max_bytes);
  ~RecordCoder();
  RecordCoder(const RecordCoder&) = delete;
  RecordCoder& operator=(const RecordCoder&) = delete;

  Result<ContentId> id_of(RecordKind kind, std::span<const std::byte> plain);
  [[nodiscard]] Packed pack(std::span<const std::byte> plain, bool compress);
  Result<void> unpack(Packing packing, std::span<const std::byte> payload, std::span<std::byte> out);
  // Opens a record: checks lengths and payload, unpacks the payload, and compares the content with its name.
  Result<void> open(const RecordHead& head, std::span<const std::byte> record, std::span<std::byte> out);
  [[nodiscard]] std::size_t max_bytes() const noexcept;

 private:
  struct State;
  explicit RecordCoder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// A pool of one job's coders, with one for each working thread. Thread-safe.
class RecordCoders {
 public:
  explicit RecordCoders(const ContentKey& key) : key_(key) {}

  // A borrowed coder, which its destructor returns. Destroy it before the RecordCoders.
  class Loan {
   public:
    Loan(RecordCoders& owner, std::unique_ptr<RecordCoder> coder)
        : owner_(&owner), coder_(std::move(coder)) {}
    Loan(Loan&&) = default;
    Loan& operator=(Loan&&) = delete;
    ~Loan() {
      if (coder_) owner_->give_back(std::move(coder_));
    }
    RecordCoder* operator->() const { return coder_.get(); }
    RecordCoder& operator*() const { return *coder_; }

   private:
    RecordCoders* owner_;
    std::unique_ptr<RecordCoder> coder_;
  };
  // Lends a coder for contents of at most `max_bytes`.
  Result<Loan> borrow(std::size_t max_bytes);

 private:
  void give_back(std::unique_ptr<RecordCoder> coder);
  const ContentKey key_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<RecordCoder>> idle_;
};

}  // namespace ckpt::checkpoint_store
