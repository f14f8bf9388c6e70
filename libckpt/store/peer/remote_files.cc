// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/peer/remote_files.h"

#include <algorithm>

#include "libckpt/base/random.h"

namespace ckpt::checkpoint_store {
namespace {

constexpr std::size_t kMaxConnections = 8;
constexpr FrameStream::Wait kConnecting{10'000};
// The time limit for an answer. The other side may first have to write much data to its disk, to free memory.
constexpr FrameStream::Wait kAnswering{300'000};

Error error_of(const FileReply& reply, const std::string& node) {
  const auto code = static_cast<ErrorCode>(reply.error_code);
  return {is_known(code) ? code : ErrorCode::kProtocol, node + ": " + reply.message};
}

}  // namespace

class RemoteFiles::Remote : public File {
 public:
  Remote(RemoteFiles& files, std::uint64_t handle) : files_(files), handle_(handle) {}
  ~Remote() override { (void)files_.call(request(FileOp::kClose)); }

  Result<void> write_at(std::uint64_t at, std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const auto piece = bytes.first(std::min(bytes.size(), kMaxPayloadBytes));
      FileRequest write = request(FileOp::kWrite);
      write.offset = at;
      CKPT_TRYV(files_.call(write, piece));
      at += piece.size();
      bytes = bytes.subspan(piece.size());
    }
    return ok();
  }
  Result<std::size_t> read_at(std::uint64_t at, std::span<std::byte> out) const override {
    std::size_t done = 0;
    while (done < out.size()) {
      const auto piece = out.subspan(done, std::min(out.size() - done, kMaxPayloadBytes));
      FileRequest read = request(FileOp::kRead);
      read.offset = at + done;
      read.bytes = piece.size();
      CKPT_TRY(answer, files_.call(read, {}, piece));
      done += answer.payload_bytes;
      if (answer.payload_bytes < piece.size()) break;
    }
    return done;
  }
  Result<std::uint64_t> size() const override {
    CKPT_TRY(answer, files_.call(request(FileOp::kSize)));
    return answer.reply.value;
  }
  Result<void> sync() override {
    CKPT_TRYV(files_.call(request(FileOp::kSync)));
    return ok();
  }

 private:
  [[nodiscard]] FileRequest request(FileOp op) const {
    FileRequest made(op);
    made.handle = handle_;
    return made;
  }
  RemoteFiles& files_;
  const std::uint64_t handle_;
};

class RemoteFiles::Lock : public FileLock {
 public:
  Lock(RemoteFiles& files, std::uint64_t handle) : files_(files), handle_(handle) {}
  ~Lock() override {
    FileRequest release(FileOp::kClose);
    release.handle = handle_;
    (void)files_.call(release);
  }

 private:
  RemoteFiles& files_;
  const std::uint64_t handle_;
};

Result<std::unique_ptr<RemoteFiles>> RemoteFiles::connect(Settings settings) {
  std::unique_ptr<RemoteFiles> files(new RemoteFiles(std::move(settings)));
  CKPT_TRY(key, frame_key_of(files->settings_.token));
  files->key_ = std::move(key);
  CKPT_TRYV(fill_random(std::as_writable_bytes(std::span(&files->session_, 1))));
  // From here on, it is known that the server can be reached and accepts this client.
  CKPT_TRY(first, files->dial());
  files->idle_.push_back(std::make_unique<FrameStream>(std::move(first)));
  files->connections_ = 1;
  return files;
}

RemoteFiles::~RemoteFiles() = default;

Result<FrameStream> RemoteFiles::dial() const {
  const auto failed = [this](const Error& reason) {
    return Error(ErrorCode::kUnavailable,
                 "The checkpoint store of " + settings_.folder + " cannot be reached at " + settings_.address)
        .caused_by(reason);
  };
  auto stream = FrameStream::connect(settings_.address, key_, kConnecting);
  if (!stream) return failed(stream.error());
  FileHello hello;
  hello.session = session_;
  if (auto sent = stream->send(wire::encode(hello), {}); !sent) return failed(sent.error());
  auto answer = stream->receive(kConnecting, kMaxRequestBytes, {});
  if (!answer) return failed(answer.error());
  auto reply = wire::decode<FileReply>(answer->head);
  if (!reply) return failed(reply.error());
  if (!reply->done) return failed(error_of(*reply, settings_.folder));
  return stream;
}

Result<std::unique_ptr<FrameStream>> RemoteFiles::borrow() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return lost_ || !idle_.empty() || connections_ < kMaxConnections; });
  if (lost_) return *lost_;
  if (!idle_.empty()) {
    auto stream = std::move(idle_.back());
    idle_.pop_back();
    return stream;
  }
  ++connections_;
  lock.unlock();
  auto made = dial();
  if (made) return std::make_unique<FrameStream>(*std::move(made));
  lost(made.error());
  return std::move(made).error();
}

void RemoteFiles::give_back(std::unique_ptr<FrameStream> stream) {
  {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(stream));
  }
  changed_.notify_one();
}

void RemoteFiles::lost(const Error& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!lost_)
      lost_ =
          Error(ErrorCode::kUnavailable, "The link to the checkpoint store of " + settings_.folder + " broke")
              .caused_by(reason);
  }
  changed_.notify_all();
}

Result<RemoteFiles::Answer> RemoteFiles::call(const FileRequest& request, std::span<const std::byte> payload,
                                              std::span<std::byte> buffer) {
  CKPT_TRY(stream, borrow());
  const auto exchange = [&]() -> Result<Answer> {
    CKPT_TRYV(stream->send(wire::encode(request), payload));
    CKPT_TRY(received, stream->receive(kAnswering, kMaxHeadBytes, buffer));
    Answer answer;
    CKPT_TRY(reply, wire::decode<FileReply>(received.head));
    answer.reply = std::move(reply);
    answer.payload_bytes = received.payload_bytes;
    return answer;
  };
  auto answer = exchange();
  if (!answer) {
    lost(answer.error());
    return Error(ErrorCode::kUnavailable,
                 "The link to the checkpoint store of " + settings_.folder + " broke")
        .caused_by(std::move(answer).error());
  }
  give_back(std::move(stream));
  if (!answer->reply.done) return error_of(answer->reply, settings_.folder);
  return answer;
}

Result<FileRequest> RemoteFiles::request_for(FileOp op, const std::string& path) const {
  FileRequest request(op);
  if (path == settings_.folder) return request;
  if (!path.starts_with(settings_.folder + "/"))
    return Error(ErrorCode::kInvalidArgument,
                 path + " is not in the checkpoint store of " + settings_.folder);
  request.path = path.substr(settings_.folder.size() + 1);
  return request;
}

Result<void> RemoteFiles::act(FileOp op, const std::string& path, const std::string& to) {
  CKPT_TRY(request, request_for(op, path));
  if (!to.empty()) {
    CKPT_TRY(target, request_for(op, to));
    request.to = target.path;
  }
  CKPT_TRYV(call(request));
  return ok();
}

Result<std::unique_ptr<File>> RemoteFiles::open_as(FileOp op, const std::string& path) {
  CKPT_TRY(request, request_for(op, path));
  CKPT_TRY(answer, call(request));
  return std::unique_ptr<File>(std::make_unique<Remote>(*this, answer.reply.value));
}

Result<std::unique_ptr<File>> RemoteFiles::create(const std::string& path) {
  return open_as(FileOp::kCreate, path);
}
Result<std::unique_ptr<File>> RemoteFiles::open(const std::string& path) {
  return open_as(FileOp::kOpen, path);
}
Result<void> RemoteFiles::rename(const std::string& from, const std::string& to) {
  return act(FileOp::kRename, from, to);
}
Result<void> RemoteFiles::remove(const std::string& path) {
  return act(FileOp::kRemove, path);
}
Result<void> RemoteFiles::make_folder(const std::string& path) {
  return act(FileOp::kMakeFolder, path);
}
Result<void> RemoteFiles::remove_folder(const std::string& path) {
  return act(FileOp::kRemoveFolder, path);
}

Result<std::vector<FolderEntry>> RemoteFiles::list(const std::string& path) {
  CKPT_TRY(request, request_for(FileOp::kList, path));
  CKPT_TRY(answer, call(request));
  std::vector<FolderEntry> entries;
  for (FileEntry& said : answer.reply.entries) {
    const bool plain = !said.name.empty() && said.name.find('/') == std::string::npos && said.name != "..";
    if (!plain) return Error(ErrorCode::kProtocol, settings_.folder + " lists a file without a name");
    entries.push_back({std::move(said.name), said.is_folder, said.bytes});
  }
  return entries;
}

// Syncs a folder of the checkpoint store. The folder that contains the checkpoint store (".") is the other
// node's responsibility.
Result<void> RemoteFiles::sync_folder(const std::string& path) {
  if (path == ".") return ok();
  return act(FileOp::kSyncFolder, path);
}

Result<std::unique_ptr<FileLock>> RemoteFiles::lock(const std::string& path) {
  CKPT_TRY(request, request_for(FileOp::kLock, path));
  CKPT_TRY(answer, call(request));
  return std::unique_ptr<FileLock>(std::make_unique<Lock>(*this, answer.reply.value));
}

}  // namespace ckpt::checkpoint_store
