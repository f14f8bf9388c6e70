// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/shim/core/trace.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "libckpt/inprocess/shim/core/job_state.h"

namespace ckpt::shim {
namespace {

constexpr std::size_t kMaxText = 256;
constexpr std::size_t kMaxLine = 12 * 1024;
constexpr std::size_t kBufferBytes = 256 * 1024;
constexpr int kMaxFiles = 1000;
constexpr int kOpen = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC;
constexpr mode_t kMode = 0600;
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{256} << 20;

// So many bytes of this process, or none: the kernel fails where a load would end the program.
bool read_own(std::uint64_t address, void* to, std::size_t bytes) noexcept {
  const iovec local{to, bytes};
  const iovec remote{reinterpret_cast<void*>(address), bytes};
  return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
}

class Line {
 public:
  void add(std::string_view text) noexcept {
    const std::size_t length = std::min(text.size(), bytes_.size() - length_);
    text.copy(bytes_.data() + length_, length);
    length_ += length;
  }
  template <class... A>
  void print(const char* format, A... arguments) noexcept {
    char text[64];
    const int length = std::snprintf(text, sizeof text, format, arguments...);
    if (length > 0) add({text, std::min(sizeof text - 1, static_cast<std::size_t>(length))});
  }
  void add_hex(const unsigned char* bytes, std::size_t count) noexcept {
    static constexpr char kDigits[] = "0123456789abcdef";
    for (std::size_t i = 0; i < count; ++i) {
      const char pair[] = {kDigits[bytes[i] >> 4], kDigits[bytes[i] & 15]};
      add({pair, 2});
    }
  }
  void add_data(std::uint64_t address, std::size_t bytes) noexcept {
    unsigned char data[kMaxTracedData];
    if (address == 0 || bytes > sizeof data || !read_own(address, data, bytes)) return;
    add("=");
    add_hex(data, bytes);
  }
  // Page by page: the text may end just before memory that is not there.
  void add_text(std::uint64_t address) noexcept {
    constexpr std::uint64_t kPage = 4096;
    char text[kMaxText];
    std::size_t read = 0;
    while (address != 0 && read < sizeof text) {
      const std::uint64_t at = address + read;
      const std::size_t bytes = std::min<std::size_t>(sizeof text - read, kPage - at % kPage);
      if (!read_own(at, text + read, bytes)) break;
      read += bytes;
      if (std::memchr(text, 0, read) != nullptr) break;
    }
    if (read == 0) return;
    add("=");
    add_hex(reinterpret_cast<const unsigned char*>(text), ::strnlen(text, read));
  }
  void add(const TraceValue& value) noexcept {
    if (value.kind == TraceValue::kStruct) {
      add(" b");
      add_data(value.value, value.bytes);
      return;
    }
    print(" %c%llx", static_cast<char>(value.kind), static_cast<unsigned long long>(value.value));
    if (value.kind == TraceValue::kText) add_text(value.value);
    if (value.kind == TraceValue::kData) add_data(value.value, value.bytes);
    if (!value.has_before) return;
    add("<");
    add_hex(reinterpret_cast<const unsigned char*>(&value.before), value.bytes);
  }
  [[nodiscard]] std::string_view text() const noexcept { return {bytes_.data(), length_}; }

 private:
  std::array<char, kMaxLine> bytes_{};
  std::size_t length_ = 0;
};

// The file is open while it is written to only: a process that has none open is dumped without one.
class Trace {
 public:
  // False if the file cannot be made.
  [[nodiscard]] bool begin(const std::string& path, int driver_version) noexcept {
    if (!make_file(path)) return false;
    buffer_.reserve(kBufferBytes);
    Line line;
    line.print("# gpumigrate-trace 1 driver %d\n", driver_version);
    append(line.text());
    return true;
  }
  void append(std::string_view line) noexcept {
    const std::lock_guard lock(mutex_);
    if (buffer_.size() + line.size() > kBufferBytes) flush();
    if (!tracing_) return;
    buffer_.append(line);
  }
  void end() noexcept {
    const std::lock_guard lock(mutex_);
    flush();
    stop();
  }
  // In a child of fork, where another thread of the parent may hold the lock.
  void forget() noexcept {
    g_tracing.store(false, std::memory_order_relaxed);
    tracing_ = false;
    in_child_ = true;
  }
  [[nodiscard]] bool in_child() const noexcept { return in_child_; }

 private:
  // A new one: jobs' processes often have the same number, each in its own namespace.
  bool make_file(const std::string& path) noexcept {
    for (int i = 0; i < kMaxFiles; ++i) {
      path_ = i == 0 ? path : path + "." + std::to_string(i);
      const int file = ::open(path_.c_str(), kOpen | O_EXCL, kMode);
      if (file >= 0) return ::close(file) == 0;
      if (errno != EEXIST) return false;
    }
    return false;
  }
  void stop() noexcept {
    tracing_ = false;
    g_tracing.store(false, std::memory_order_relaxed);
  }
  void flush() noexcept {
    if (!tracing_ || buffer_.empty()) return;
    const int file = ::open(path_.c_str(), kOpen, kMode);
    std::size_t done = 0;
    while (file >= 0 && done < buffer_.size()) {
      const ssize_t count = ::write(file, buffer_.data() + done, buffer_.size() - done);
      if (count <= 0 && errno != EINTR) break;
      done += count > 0 ? static_cast<std::size_t>(count) : 0;
    }
    if (file >= 0) ::close(file);
    written_ += buffer_.size();
    if (done < buffer_.size() || written_ > kMaxFileBytes) stop();
    buffer_.clear();
  }

  std::mutex mutex_;
  std::string path_;
  std::string buffer_;
  std::uint64_t written_ = 0;
  bool tracing_ = true;
  bool in_child_ = false;
};

Trace* g_trace = nullptr;  // never destroyed: the program's own destructors may call the driver

// The last lines leave with the program; calls of later destructors are not traced.
struct EndsTrace {
  ~EndsTrace() {
    if (g_trace != nullptr && !g_trace->in_child()) g_trace->end();
  }
} g_ends_trace;

}  // namespace

const char* trace_file() noexcept {
  const char* const file = std::getenv("GPUMIGRATE_TRACE");
  return file == nullptr || *file == '\0' ? nullptr : file;
}

void start_trace(const char* file, int driver_version) {
  g_trace = new Trace;
  at_fork_child([] { g_trace->forget(); });
  if (!g_trace->begin(std::string(file) + "." + std::to_string(::getpid()), driver_version)) return;
  g_tracing.store(true, std::memory_order_release);
}

void read_before(TraceValue* values, std::size_t count) noexcept {
  const int error = errno;
  for (std::size_t i = 0; i < count; ++i) {
    TraceValue& value = values[i];
    if (value.kind != TraceValue::kData || value.value == 0 || value.bytes > sizeof value.before) continue;
    value.has_before = read_own(value.value, &value.before, value.bytes);
  }
  errno = error;
}

void trace_call(const char* name, int result, Nanos began, const TraceValue* values,
                std::size_t count) noexcept {
  static thread_local const pid_t thread = ::gettid();
  const int error = errno;
  Line line;
  line.print("%d %lld %lld ", thread, static_cast<long long>(began / 1000),
             static_cast<long long>((now_ns() - began) / 1000));
  line.add(name);
  line.print(" %d", result);
  for (std::size_t i = 0; i < count; ++i) line.add(values[i]);
  line.add("\n");
  g_trace->append(line.text());
  errno = error;
}

}  // namespace ckpt::shim
