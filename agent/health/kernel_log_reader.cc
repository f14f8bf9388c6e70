// SPDX-License-Identifier: Apache-2.0
#include "agent/health/kernel_log_reader.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

namespace ckpt::agent {

KernelLogReader::KernelLogReader(const asio::any_io_executor& executor, FileWatch& files, std::string path,
                                 UniqueFd fd, Kind kind)
    : executor_(executor),
      files_(files),
      path_(std::move(path)),
      fd_(std::move(fd)),
      kind_(kind),
      stream_(executor),
      grown_(executor) {}

Result<std::shared_ptr<KernelLogReader>> KernelLogReader::create(const asio::any_io_executor& executor,
                                                                 FileWatch& files, const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return Error::from_errno("Cannot find the kernel log " + path);
  const Kind kind = S_ISREG(status.st_mode)    ? Kind::kFile
                    : S_ISFIFO(status.st_mode) ? Kind::kPipe
                                               : Kind::kDevice;
  // A FIFO is also opened for writing, so that the reader sees no end of file when a writer closes it.
  const int access = kind == Kind::kPipe ? O_RDWR : O_RDONLY;
  UniqueFd fd(::open(path.c_str(), access | O_NONBLOCK | O_CLOEXEC));
  if (!fd) return Error::from_errno("Cannot open the kernel log " + path);
  std::shared_ptr<KernelLogReader> reader(new KernelLogReader(executor, files, path, std::move(fd), kind));
  if (kind == Kind::kFile) return reader;
  UniqueFd watched(::fcntl(reader->fd_.get(), F_DUPFD_CLOEXEC, 3));
  if (!watched) return Error::from_errno("Cannot watch the kernel log " + path);
  boost::system::error_code error;
  reader->stream_.assign(watched.get(), error);
  if (error) return Error(ErrorCode::kIo, "Cannot watch the kernel log " + path + ": " + error.message());
  (void)watched.release();  // releases the descriptor, because the stream closes it
  return reader;
}

void KernelLogReader::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  control::spawn(executor_, "kernel log", read_loop());
}

void KernelLogReader::stop() {
  stopped_ = true;
  handlers_ = {};
  boost::system::error_code ignored;
  stream_.close(ignored);
  grown_.notify();
}

Task<> KernelLogReader::read_loop() {
  const auto self = shared_from_this();
  std::unique_ptr<FileWatch::Watch> watch;
  if (kind_ == Kind::kFile) {
    auto watched = files_.watch(path_, &grown_);
    if (!watched) {
      spdlog::error("kernel log not watched: path {} reason {}", path_, watched.error().to_string());
      co_return;
    }
    watch = *std::move(watched);
  }
  bool first = true;
  while (!stopped_ && read_available()) {
    if (std::exchange(first, false) && handlers_.caught_up) handlers_.caught_up();
    co_await wait_for_more();
  }
}

Task<> KernelLogReader::wait_for_more() {
  if (stopped_) co_return;
  if (kind_ == Kind::kFile) {
    co_await grown_.wait(std::chrono::steady_clock::time_point::max());
    co_return;
  }
  boost::system::error_code ignored;
  co_await stream_.async_wait(asio::posix::stream_descriptor::wait_read,
                              asio::redirect_error(asio::use_awaitable, ignored));
}

bool KernelLogReader::read_available() {
  std::array<char, health::kMaxRecordBytes> room;
  for (;;) {
    if (stopped_) return false;
    const ssize_t got = ::read(fd_.get(), room.data(), room.size());
    if (got > 0) {
      handle(std::string_view(room.data(), static_cast<std::size_t>(got)));
    } else if (got == 0 || errno == EAGAIN) {
      return true;
    } else if (errno != EINTR && errno != EPIPE && errno != EINVAL) {
      // EPIPE means that the ring buffer has overwritten the next record. EINVAL means that a record is
      // longer than the limit. In both cases the reader continues after that record.
      spdlog::error("kernel log is no longer read: path {} reason {}", path_,
                    Error::from_errno("read").to_string());
      return false;
    }
  }
}

void KernelLogReader::handle(std::string_view bytes) {
  if (kind_ == Kind::kDevice) return handle_record(bytes);
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    too_long_ = too_long_ || line_.size() + part.size() > health::kMaxRecordBytes;
    if (!too_long_) line_ += part;
    if (end == std::string_view::npos) return;
    if (!too_long_) handle_record(line_);
    line_.clear();
    too_long_ = false;
    bytes.remove_prefix(end + 1);
  }
}

void KernelLogReader::handle_record(std::string_view text) {
  auto record = health::parse_record(text);
  if (record && handlers_.record) handlers_.record(std::move(*record));
}

}  // namespace ckpt::agent
