// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/peer/file_session.h"

#include <algorithm>

#include "libckpt/base/fault.h"
#include "libckpt/store/local/format.h"

namespace ckpt::checkpoint_store {
namespace {

constexpr std::size_t kMaxOpen = 256;
constexpr std::uint64_t kMaxOffset = std::uint64_t{1} << 40;  // the maximum offset in a file, which is that
                                                              // of packs (chunk_index.h)
constexpr std::size_t kMaxEntries = 60'000;  // the maximum number of entries of 40 bytes that a reply's head
                                             // can hold

bool reads_only(FileOp op) {
  return op == FileOp::kOpen || op == FileOp::kRead || op == FileOp::kSize || op == FileOp::kClose ||
         op == FileOp::kList;
}

bool is_on_file(FileOp op) {
  return op == FileOp::kWrite || op == FileOp::kRead || op == FileOp::kSize || op == FileOp::kSync ||
         op == FileOp::kClose;
}

FileReply with_value(std::uint64_t value) {
  FileReply reply;
  reply.value = value;
  return reply;
}

}  // namespace

FileReply refusal(const Error& error) {
  constexpr std::size_t kMaxText = 2000;
  FileReply reply;
  reply.done = false;
  reply.error_code = static_cast<std::uint8_t>(error.code());
  reply.message = error.to_string().substr(0, kMaxText);
  return reply;
}

FileServer::Session::Session(Tiers tiers, FileGrant grant, std::vector<std::byte> token)
    : folder_(tiers.disk), grant_(std::move(grant)), token_(std::move(token)), quota_(grant_.limit_bytes) {
  if (tiers.memory.empty()) return;
  files_ = std::make_unique<TieredFiles>(std::move(tiers));
}

std::string FileServer::Session::full(const std::string& path) const {
  return path.empty() ? folder_ : folder_ + "/" + path;
}

void FileServer::Session::serve(FrameStream& stream) {
  std::vector<std::byte> buffer(kMaxPayloadBytes);
  while (true) {
    auto received = stream.receive(FrameStream::kForever, kMaxRequestBytes, buffer);
    if (!received) return;
    auto request = wire::decode<FileRequest>(received->head);
    if (!request) return;
    std::size_t out_bytes = 0;
    auto payload = std::span(buffer).first(received->payload_bytes);
    if (request->op == FileOp::kRead) payload = buffer;
    auto reply = perform(*request, payload, out_bytes);
    const FileReply said = reply ? *std::move(reply) : refusal(reply.error());
    if (!stream.send(wire::encode(said), std::span(buffer).first(said.done ? out_bytes : 0))) return;
  }
}

// Checks a request. A session that writes must hold the checkpoint store's lock.
Result<void> FileServer::Session::check(const FileRequest& request) const {
  if (!is_on_file(request.op)) {
    CKPT_TRYV(check_path(request.path, grant_.job));
  }
  if (request.op == FileOp::kRename) {
    CKPT_TRYV(check_path(request.to, grant_.job));
  }
  if (reads_only(request.op)) return ok();
  const bool changes_file = request.op == FileOp::kCreate || request.op == FileOp::kRemove;
  const bool renames = request.op == FileOp::kRename;
  const bool is_folder = request.path.empty() || request.path == "jobs" ||
                         (request.path.starts_with("jobs/") && !is_file_of_job(request.path, grant_.job));
  if (((changes_file || renames) && !is_file_of_job(request.path, grant_.job)) ||
      (renames && !is_file_of_job(request.to, grant_.job)) ||
      (request.op == FileOp::kRemoveFolder && !request.path.starts_with("jobs/")) ||
      (request.op == FileOp::kMakeFolder && !is_folder))
    return Error(
        ErrorCode::kInvalidArgument,
        "A grant for job " + grant_.job + " allows changes only to the job's files in the checkpoint store");
  if (!grant_.writes)
    return Error(ErrorCode::kInvalidArgument,
                 "The images of job " + grant_.job + " are granted for reading only");
  const std::lock_guard lock(mutex_);
  if (lock_ || request.op == FileOp::kLock || request.op == FileOp::kMakeFolder) return ok();
  return Error(ErrorCode::kInvalidArgument, "A checkpoint store must be locked before it is written");
}

Result<FileReply> FileServer::Session::perform(const FileRequest& request, std::span<std::byte> payload,
                                               std::size_t& out_bytes) {
  CKPT_TRYV(check(request));
  return is_on_file(request.op) ? perform_on_file(request, payload, out_bytes) : perform_on_path(request);
}

Result<FileServer::Session::OpenFile> FileServer::Session::find(std::uint64_t handle) const {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(handle);
  if (found == open_.end()) return Error(ErrorCode::kInvalidArgument, "The requested file is not open");
  return found->second;
}

Result<FileReply> FileServer::Session::perform_on_file(const FileRequest& request,
                                                       std::span<std::byte> payload, std::size_t& out_bytes) {
  if (request.op == FileOp::kClose) {
    const std::lock_guard lock(mutex_);
    if (request.handle == lock_handle_) lock_.reset();
    open_.erase(request.handle);
    return FileReply();
  }
  CKPT_TRY(open, find(request.handle));
  if (request.offset > kMaxOffset)
    return Error(ErrorCode::kInvalidArgument, "The offset is beyond the largest possible file");
  switch (request.op) {
    case FileOp::kWrite: {
      if (!open.writes) return Error(ErrorCode::kInvalidArgument, "The file is open for reading only");
      {
        const std::lock_guard lock(mutex_);
        CKPT_TRYV(quota_.write(open.extent, request.offset, payload.size()));
      }
      CKPT_TRYV(open.file->write_at(request.offset, payload));
      fault_point(FaultPoint::kCheckpointStoreServerWritten);
      return FileReply();
    }
    case FileOp::kRead: {
      if (request.bytes > payload.size())
        return Error(ErrorCode::kInvalidArgument, "The request asks for too many bytes at once");
      CKPT_TRY(count, open.file->read_at(request.offset, payload.first(request.bytes)));
      out_bytes = count;
      return with_value(count);
    }
    case FileOp::kSize: {
      CKPT_TRY(size, open.file->size());
      return with_value(size);
    }
    default: {
      CKPT_TRYV(open.file->sync());
      fault_point(FaultPoint::kCheckpointStoreServerSynced);
      return FileReply();
    }
  }
}

Result<FileReply> FileServer::Session::perform_on_path(const FileRequest& request) {
  Files& files = files_ ? *files_ : posix_files();
  switch (request.op) {
    case FileOp::kCreate:
      return create(request.path);
    case FileOp::kOpen:
      return keep(files.open(full(request.path)), nullptr);
    case FileOp::kList:
      return list(request.path);
    case FileOp::kLock:
      return lock(request.path);
    default: {
      CKPT_TRYV(change(request));
      if (request.op == FileOp::kRename) fault_point(FaultPoint::kCheckpointStoreServerRenamed);
      if (request.op == FileOp::kSyncFolder) fault_point(FaultPoint::kCheckpointStoreServerSettled);
      return FileReply();
    }
  }
}

Result<void> FileServer::Session::change(const FileRequest& request) {
  Files& files = files_ ? *files_ : posix_files();
  switch (request.op) {
    case FileOp::kRename: {
      CKPT_TRYV(files.rename(full(request.path), full(request.to)));
      const std::lock_guard lock(mutex_);
      close_all(quota_.rename(request.path, request.to));
      return ok();
    }
    case FileOp::kRemove: {
      CKPT_TRYV(files.remove(full(request.path)));
      const std::lock_guard lock(mutex_);
      close_all(quota_.remove(request.path));
      return ok();
    }
    case FileOp::kMakeFolder:
      return files.make_folder(full(request.path));
    case FileOp::kRemoveFolder:
      return files.remove_folder(full(request.path));
    default:
      return files.sync_folder(full(request.path));
  }
}

void FileServer::Session::close_all(const Quota::Handle& extent) {
  if (extent) std::erase_if(open_, [&](const auto& entry) { return entry.second.extent == extent; });
}

Result<FileReply> FileServer::Session::create(const std::string& path) {
  Files& files = files_ ? *files_ : posix_files();
  auto made = files.create(full(path));
  if (!made) return std::move(made).error();
  Quota::Handle extent;
  {
    const std::lock_guard lock(mutex_);
    CKPT_TRY(counted, quota_.create(path));
    extent = std::move(counted);
  }
  return keep(std::move(made), std::move(extent));
}

Result<FileReply> FileServer::Session::keep(Result<std::unique_ptr<File>> file, Quota::Handle extent) {
  if (!file) return std::move(file).error();
  const std::lock_guard lock(mutex_);
  if (open_.size() >= kMaxOpen) return Error(ErrorCode::kInvalidArgument, "Too many open files");
  OpenFile& open = open_[next_];
  open.file = *std::move(file);
  open.writes = extent != nullptr;
  open.extent = std::move(extent);
  return with_value(next_++);
}

Result<FileReply> FileServer::Session::lock(const std::string& path) {
  if (path != "lock") return Error(ErrorCode::kInvalidArgument, "A checkpoint store has only one lock");
  Files& files = files_ ? *files_ : posix_files();
  CKPT_TRY(held, files.lock(full(path)));
  if (grant_.writes) {
    CKPT_TRYV(have_checkpoint_store_file(files));
  }
  const std::lock_guard lock(mutex_);
  CKPT_TRYV(quota_.begin(files, full("jobs/" + grant_.job)));
  lock_ = std::move(held);
  lock_handle_ = next_;
  return with_value(next_++);
}

Result<void> FileServer::Session::have_checkpoint_store_file(Files& files) {
  const auto bytes = read_whole(files, full("vault"), kMaxSmallFileBytes);
  if (bytes && read_small_file(SmallFile::kCheckpointStore, *bytes)) return ok();
  const bool is_missing = !bytes && bytes.error().code() == ErrorCode::kNotFound;
  const bool is_damaged = bytes || bytes.error().code() == ErrorCode::kCorrupt;
  if (!is_missing && !is_damaged) return bytes.error();
  return write_whole(files, folder_, "vault", make_small_file(SmallFile::kCheckpointStore, {}));
}

// Lists a folder. The folder of the jobs shows only the granted job.
Result<FileReply> FileServer::Session::list(const std::string& path) {
  Files& files = files_ ? *files_ : posix_files();
  CKPT_TRY(entries, files.list(full(path)));
  FileReply reply;
  for (const FolderEntry& entry : entries) {
    if (path == "jobs" && entry.name != grant_.job) continue;
    if (reply.entries.size() >= kMaxEntries)
      return Error(ErrorCode::kNotSupported, full(path) + " has too many files to be read by another node");
    FileEntry& said = reply.entries.emplace_back();
    said.name = entry.name;
    said.is_folder = entry.is_folder;
    said.bytes = entry.bytes;
  }
  return reply;
}

}  // namespace ckpt::checkpoint_store
