// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/local/pack.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>

namespace ckpt::checkpoint_store {
namespace {

constexpr std::size_t kBufferBytes = 4 << 20;
constexpr std::string_view kPackSuffix = ".pack";

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

// A window over a file that is read sequentially.
class Window {
 public:
  Window(const File& file, std::uint64_t end) : file_(file), end_(end) {}
  // Returns the bytes, which are fewer than `count` only at the end of the file.
  Result<std::span<const std::byte>> at(std::uint64_t offset, std::uint64_t count) {
    count = offset < end_ ? std::min(count, end_ - offset) : 0;
    if (offset < begin_ || offset + count > begin_ + buffer_.size()) {
      buffer_.resize(std::min<std::uint64_t>(std::max<std::uint64_t>(count, kBufferBytes), end_ - offset));
      CKPT_TRY(read, file_.read_at(offset, buffer_));
      buffer_.resize(read);
      begin_ = offset;
      count = std::min<std::uint64_t>(count, read);
    }
    return std::span<const std::byte>(buffer_).subspan(offset - begin_, count);
  }

 private:
  const File& file_;
  const std::uint64_t end_;
  std::uint64_t begin_ = 0;
  std::vector<std::byte> buffer_;
};

Result<PackTail> read_tail(const File& file, std::uint64_t size) {
  std::vector<std::byte> bytes(std::min<std::uint64_t>(size, sizeof(PackTail)));
  CKPT_TRY(count, file.read_at(size - bytes.size(), bytes));
  bytes.resize(count);
  return read_pack_tail(bytes, size);
}

Result<std::vector<IndexEntry>> read_whole_index(const File& file, const PackTail& tail) {
  std::vector<std::byte> bytes(tail.count * sizeof(IndexEntry));
  CKPT_TRY(count, file.read_at(tail.index_offset, bytes));
  bytes.resize(count);
  return read_index(tail, bytes);
}

bool is_damage(const Error& error) {
  return error.code() == ErrorCode::kCorrupt;
}

class PackWalk {
 public:
  PackWalk(const File& file, std::uint64_t end, VisitRecord visit, VisitDamage damaged)
      : window_(file, end), end_(end), visit_(std::move(visit)), damaged_(std::move(damaged)) {}

  Result<void> run() {
    std::uint64_t at = sizeof(PackHead);
    bool lost = false;
    while (at < end_) {
      CKPT_TRY(bytes, window_.at(at, sizeof(RecordHead)));
      const auto head = read_record_head(bytes);
      if (!head || record_bytes(head->stored_bytes) > end_ - at) {
        if (!lost) damaged_(at, head ? "A record is cut off" : head.error().message());
        lost = true;
        at += kRecordAlignment;
        continue;
      }
      lost = false;
      CKPT_TRYV(look_at(*head, at));
      at += record_bytes(head->stored_bytes);
    }
    return ok();
  }

 private:
  Result<void> look_at(const RecordHead& head, std::uint64_t at) {
    CKPT_TRY(record, window_.at(at, record_bytes(head.stored_bytes)));
    if (auto payload = check_payload(head, record); !payload) {
      damaged_(at, payload.error().message());
      return ok();
    }
    return visit_(head, at, record);
  }

  Window window_;
  const std::uint64_t end_;
  const VisitRecord visit_;
  const VisitDamage damaged_;
};

}  // namespace

Result<void> Budget::charge(std::uint64_t bytes) {
  const std::uint64_t before = used_.fetch_add(bytes);
  if (limit_ == 0 || before + bytes <= limit_) return ok();
  used_ -= bytes;
  return Error(ErrorCode::kRefused, "The checkpoint store is at its limit: it holds " +
                                        std::to_string(before) + " of " + std::to_string(limit_) +
                                        " bytes and " + std::to_string(bytes) +
                                        " more must be written: keep fewer versions, or raise the limit");
}

std::string pack_name(std::uint64_t number) {
  char text[40];
  std::snprintf(text, sizeof text, "%010lu", static_cast<unsigned long>(number));
  return text + std::string(kPackSuffix);
}

std::uint64_t pack_number(const std::string& name) {
  if (!name.ends_with(kPackSuffix)) return 0;
  std::uint64_t number = 0;
  const char* end = name.data() + name.size() - kPackSuffix.size();
  const auto [rest, failure] = std::from_chars(name.data(), end, number);
  return failure == std::errc{} && rest == end && pack_name(number) == name ? number : 0;
}

PackWriter::PackWriter(Files& files, Budget& budget, std::string folder, std::uint64_t number,
                       bool over_budget)
    : files_(files),
      budget_(budget),
      folder_(std::move(folder)),
      number_(number),
      over_budget_(over_budget) {}

Result<std::unique_ptr<PackWriter>> PackWriter::create(Files& files, Budget& budget,
                                                       const std::string& folder, std::uint64_t number,
                                                       bool over_budget) {
  std::unique_ptr<PackWriter> writer(new PackWriter(files, budget, folder, number, over_budget));
  CKPT_TRY(file, files.create(folder + "/" + unfinished(pack_name(number))));
  writer->file_ = std::move(file);
  writer->buffer_.reserve(kBufferBytes);
  CKPT_TRYV(writer->write(bytes_of(make_pack_head(number))));
  return writer;
}

PackWriter::~PackWriter() {
  if (published_) return;
  if (file_) {
    file_.reset();
    // A file that cannot be removed here is removed when the checkpoint store is opened again.
    (void)files_.remove(folder_ + "/" + unfinished(pack_name(number_)));
  }
  budget_.give_back(taken_);
}

Result<void> PackWriter::flush() {
  if (buffer_.empty()) return ok();
  CKPT_TRYV(file_->write_at(flushed_, buffer_));
  flushed_ += buffer_.size();
  buffer_.clear();
  return ok();
}

Result<void> PackWriter::write(std::span<const std::byte> bytes) {
  if (over_budget_) {
    budget_.take_anyway(bytes.size());
  } else {
    CKPT_TRYV(budget_.charge(bytes.size()));
  }
  taken_ += bytes.size();
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kBufferBytes - buffer_.size()));
    buffer_.insert(buffer_.end(), piece.begin(), piece.end());
    bytes = bytes.subspan(piece.size());
    end_ += piece.size();
    if (buffer_.size() == kBufferBytes) {
      CKPT_TRYV(flush());
    }
  }
  return ok();
}

Result<std::uint64_t> PackWriter::append(const RecordHead& head, std::span<const std::byte> payload) {
  constexpr std::array<std::byte, kRecordAlignment> kPadding{};
  const std::uint64_t offset = end_;
  CKPT_TRYV(write(bytes_of(head)));
  CKPT_TRYV(write(payload));
  CKPT_TRYV(write(std::span(kPadding).first(record_bytes(payload.size()) - sizeof head - payload.size())));
  index_.push_back(make_index_entry(head, offset));
  return offset;
}

Result<void> PackWriter::finish() {
  const PackTail tail = make_pack_tail(end_, index_);
  CKPT_TRYV(write(std::as_bytes(std::span(index_))));
  CKPT_TRYV(write(bytes_of(tail)));
  return flush();
}

Result<void> PackWriter::sync() {
  return file_->sync();
}

Result<void> PackWriter::publish() {
  const std::string name = pack_name(number_);
  CKPT_TRYV(files_.rename(folder_ + "/" + unfinished(name), folder_ + "/" + name));
  published_ = true;
  return ok();
}

Result<LoadedPack> load_pack(Files& files, const std::string& folder, std::uint64_t number) {
  CKPT_TRY(file, files.open(folder + "/" + pack_name(number)));
  CKPT_TRY(size, file->size());
  LoadedPack pack;
  pack.bytes = size;
  std::vector<std::byte> head(std::min<std::uint64_t>(size, sizeof(PackHead)));
  CKPT_TRY(head_bytes, file->read_at(0, head));
  head.resize(head_bytes);
  if (auto checked = check_pack_head(head, number); !checked) {
    if (!is_damage(checked.error())) return std::move(checked).error();
    pack.damage.push_back(checked.error().message());
  }
  auto tail = read_tail(*file, size);
  if (tail) {
    auto index = read_whole_index(*file, *tail);
    if (index) {
      pack.index = *std::move(index);
      return pack;
    }
    if (!is_damage(index.error())) return std::move(index).error();
    pack.damage.push_back(index.error().message());
  } else {
    if (!is_damage(tail.error())) return std::move(tail).error();
    pack.damage.push_back(tail.error().message());
  }
  const auto keep = [&pack](const RecordHead& record, std::uint64_t offset,
                            std::span<const std::byte>) -> Result<void> {
    pack.index.push_back(make_index_entry(record, offset));
    return ok();
  };
  PackWalk walk(*file, size, keep, [](std::uint64_t, const std::string&) {});
  CKPT_TRYV(walk.run());
  return pack;
}

Result<void> walk_pack(Files& files, const std::string& folder, std::uint64_t number,
                       const VisitRecord& visit, const VisitDamage& damaged) {
  CKPT_TRY(file, files.open(folder + "/" + pack_name(number)));
  CKPT_TRY(size, file->size());
  std::vector<std::byte> head(std::min<std::uint64_t>(size, sizeof(PackHead)));
  CKPT_TRYV(file->read_at(0, head));
  if (auto checked = check_pack_head(head, number); !checked) damaged(0, checked.error().message());
  std::uint64_t end = size;
  auto tail = read_tail(*file, size);
  if (tail) {
    end = tail->index_offset;
    if (auto index = read_whole_index(*file, *tail); !index) damaged(end, index.error().message());
  } else {
    damaged(size, tail.error().message());
  }
  return PackWalk(*file, end, visit, damaged).run();
}

}  // namespace ckpt::checkpoint_store
