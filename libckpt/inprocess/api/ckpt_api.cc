// SPDX-License-Identifier: Apache-2.0
// The C boundary of ckpt.h. It checks arguments, converts errors into status and text, and lets no exception
// escape.
#include "libckpt/include/ckpt/ckpt.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>

#include "libckpt/inprocess/api/session.h"

struct ckpt_session {
  const std::atomic<std::uint32_t>* request_word;
  std::unique_ptr<ckpt::job::Session> session;
};

namespace {

using ckpt::Error;
using ckpt::ErrorCode;
using ckpt::Result;

constexpr std::uint64_t kMaxCallbackBytes = 1ull << 30;

thread_local char last_error[1024];
std::atomic<bool> session_exists{false};

ckpt_status fail(ckpt_status status, const std::string& text) {
  std::snprintf(last_error, sizeof last_error, "%s", text.c_str());
  return status;
}

ckpt_status fail(const Error& error, ckpt_status refused = CKPT_ERROR_LIMIT) {
  const std::string text = error.to_string();
  switch (error.code()) {
    case ErrorCode::kInvalidArgument:
      return fail(CKPT_ERROR_INVALID, text);
    case ErrorCode::kOutOfMemory:
      return fail(CKPT_ERROR_MEMORY, text);
    case ErrorCode::kRefused:
    case ErrorCode::kCorrupt:
    case ErrorCode::kAborted:
      return fail(refused, text);
    case ErrorCode::kUnavailable:
    case ErrorCode::kProtocol:
    case ErrorCode::kNotFound:
      return fail(CKPT_ERROR_CONNECTION, text);
    default:
      break;
  }
  return fail(error.domain() == ckpt::ErrorDomain::kErrno ? CKPT_ERROR_CONNECTION : CKPT_ERROR_CUDA, text);
}

// Runs `body` (returns ckpt_status) and lets no exception escape.
template <class Body>
ckpt_status guarded(Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    std::snprintf(last_error, sizeof last_error, "The process is out of host memory");
    return CKPT_ERROR_MEMORY;
  } catch (const std::exception& error) {
    std::snprintf(last_error, sizeof last_error, "%s", error.what());
    return CKPT_ERROR_INVALID;
  }
}

template <class Body>
ckpt_status with_session(ckpt_session* session, Body body) noexcept {
  return guarded([&] {
    if (session == nullptr) return fail(CKPT_ERROR_INVALID, "There is no session: call ckpt_init first");
    const Result<void> done = body(*session->session);
    return done.has_value() ? CKPT_OK : fail(done.error());
  });
}

// Returns the name as a string, or an error for a name that no message could carry.
Result<std::string> checked_name(const char* name) {
  const std::size_t length = name == nullptr ? 0 : ::strnlen(name, CKPT_MAX_NAME + 1);
  if (length == 0 || length > CKPT_MAX_NAME) {
    return Error(ErrorCode::kInvalidArgument,
                 "A name must have 1 to " + std::to_string(CKPT_MAX_NAME) + " bytes");
  }
  for (const char* at = name; *at != '\0'; ++at) {
    if (static_cast<unsigned char>(*at) < 0x20 || *at == 0x7f) {
      return Error(ErrorCode::kInvalidArgument, "A name must not contain control characters");
    }
  }
  return std::string(name, length);
}

Result<ckpt::job::Tensor> checked_tensor(const char* name, ckpt_devptr pointer, size_t bytes,
                                         ckpt_dtype dtype, uint32_t dims, const uint64_t* shape,
                                         ckpt_kind kind) {
  CKPT_TRY(checked, checked_name(name));
  if (dims > CKPT_MAX_DIMS || (dims != 0 && shape == nullptr)) {
    return Error(ErrorCode::kInvalidArgument,
                 "Tensor '" + checked + "': a shape can have at most 8 dimensions");
  }
  if (kind < CKPT_PARAMETER || kind > CKPT_SCRATCH) {
    return Error(ErrorCode::kInvalidArgument, "Tensor '" + checked + "': its kind is unknown");
  }
  if (ckpt::local::dtype_bytes(dtype) == 0) {
    return Error(ErrorCode::kInvalidArgument, "Tensor '" + checked + "': its dtype is unknown");
  }
  ckpt::job::Tensor tensor;
  tensor.shape.assign(shape, shape + dims);
  std::uint64_t expected = 0;
  if (!ckpt::local::shape_bytes(dtype, tensor.shape, expected) || expected != bytes) {
    return Error(ErrorCode::kInvalidArgument, "Tensor '" + checked + "': its shape and dtype result in " +
                                                  std::to_string(expected) + " bytes, not " +
                                                  std::to_string(bytes));
  }
  std::uint64_t end = 0;
  if (pointer == 0 || __builtin_add_overflow(pointer, bytes, &end)) {
    return Error(ErrorCode::kInvalidArgument, "Tensor '" + checked + "': the pointer is not valid");
  }
  tensor.name = std::move(checked);
  tensor.pointer = pointer;
  tensor.bytes = bytes;
  tensor.dtype = dtype;
  tensor.kind = kind;
  return tensor;
}

ckpt_status slow_barrier(ckpt_session* session) noexcept {
  return guarded([&] {
    const Result<ckpt::job::BarrierEnd> end = session->session->barrier();
    if (!end.has_value()) return fail(end.error());
    return *end == ckpt::job::BarrierEnd::kMoved ? CKPT_MOVED : CKPT_OK;
  });
}

}  // namespace

extern "C" {

uint32_t ckpt_abi_version(void) {
  return CKPT_ABI_VERSION;
}

const char* ckpt_last_error(void) {
  return last_error;
}

ckpt_status ckpt_init(const ckpt_options* options, ckpt_session** session, ckpt_role* role) {
  return guarded([&] {
    if (session == nullptr)
      return fail(CKPT_ERROR_INVALID, "ckpt_init needs a pointer to store the session in");
    *session = nullptr;
    if (options != nullptr && (options->abi_version == 0 || options->abi_version > CKPT_ABI_VERSION)) {
      return fail(CKPT_ERROR_INVALID,
                  "The program was built for ABI version " + std::to_string(options->abi_version) +
                      " of ckpt.h, but this library has version " + std::to_string(CKPT_ABI_VERSION));
    }
    const std::uint32_t flags = options != nullptr ? options->flags : 0;
    if ((flags & ~static_cast<std::uint32_t>(CKPT_OPTION_RETURN_MOVED)) != 0) {
      return fail(CKPT_ERROR_INVALID, "ckpt_options has unknown flags");
    }
    if (session_exists.exchange(true)) return fail(CKPT_ERROR_INVALID, "This process has a session already");
    const char* path = std::getenv("CKPT_SOCKET");
    Result<std::unique_ptr<ckpt::job::Session>> created =
        ckpt::job::Session::create(path == nullptr ? "" : path, (flags & CKPT_OPTION_RETURN_MOVED) != 0);
    if (!created.has_value()) {
      session_exists = false;
      return fail(CKPT_ERROR_CONNECTION, created.error().to_string());
    }
    std::unique_ptr<ckpt::job::Session> made = *std::move(created);
    if (role != nullptr)
      *role = made->role() == ckpt::local::Role::kStandby ? CKPT_ROLE_STANDBY : CKPT_ROLE_FRESH;
    const std::atomic<std::uint32_t>* word = made->request_word();
    *session = new ckpt_session{word, std::move(made)};
    return CKPT_OK;
  });
}

ckpt_status ckpt_alloc(ckpt_session* session, size_t bytes, ckpt_devptr* pointer) {
  return with_session(session, [&](ckpt::job::Session& runtime) -> Result<void> {
    if (bytes == 0 || pointer == nullptr) {
      return Error(ErrorCode::kInvalidArgument,
                   "ckpt_alloc needs a size above 0 and a pointer to store the address in");
    }
    CKPT_TRY(allocated, runtime.allocate(bytes));
    *pointer = allocated;
    return ckpt::ok();
  });
}

ckpt_status ckpt_free(ckpt_session* session, ckpt_devptr pointer) {
  return with_session(session, [&](ckpt::job::Session& runtime) { return runtime.free(pointer); });
}

ckpt_status ckpt_tensor(ckpt_session* session, const char* name, ckpt_devptr pointer, size_t bytes,
                        ckpt_dtype dtype, uint32_t dims, const uint64_t* shape, ckpt_kind kind) {
  return with_session(session, [&](ckpt::job::Session& runtime) -> Result<void> {
    CKPT_TRY(tensor, checked_tensor(name, pointer, bytes, dtype, dims, shape, kind));
    return runtime.name_tensor(std::move(tensor));
  });
}

ckpt_status ckpt_drop(ckpt_session* session, const char* name) {
  return with_session(session, [&](ckpt::job::Session& runtime) -> Result<void> {
    CKPT_TRY(checked, checked_name(name));
    return runtime.drop_tensor(checked);
  });
}

ckpt_status ckpt_host_state(ckpt_session* session, const char* name, void* pointer, size_t bytes) {
  return with_session(session, [&](ckpt::job::Session& runtime) -> Result<void> {
    CKPT_TRY(checked, checked_name(name));
    if (pointer == nullptr || bytes == 0) {
      return Error(ErrorCode::kInvalidArgument,
                   "Host state '" + checked + "' needs a pointer and a size above 0");
    }
    return runtime.add_host_memory(std::move(checked), pointer, bytes);
  });
}

ckpt_status ckpt_host_callbacks(ckpt_session* session, const char* name, ckpt_save_fn save, ckpt_load_fn load,
                                void* user) {
  return with_session(session, [&](ckpt::job::Session& runtime) -> Result<void> {
    CKPT_TRY(checked, checked_name(name));
    if (save == nullptr || load == nullptr) {
      return Error(ErrorCode::kInvalidArgument, "Host state '" + checked + "' needs both callbacks");
    }
    return runtime.add_host_callbacks(std::move(checked), save, load, user);
  });
}

ckpt_status ckpt_write(ckpt_writer* writer, const void* data, size_t bytes) {
  return guarded([&] {
    if (writer == nullptr || (data == nullptr && bytes != 0))
      return fail(CKPT_ERROR_INVALID, "ckpt_write needs a pointer to data");
    if (bytes > kMaxCallbackBytes - writer->bytes.size()) {
      return fail(CKPT_ERROR_LIMIT, "One host state can have at most 1 GiB");
    }
    const auto* first = static_cast<const std::byte*>(data);
    writer->bytes.insert(writer->bytes.end(), first, first + bytes);
    return CKPT_OK;
  });
}

ckpt_status ckpt_ready(ckpt_session* session, ckpt_start* start) {
  return guarded([&] {
    if (session == nullptr) return fail(CKPT_ERROR_INVALID, "There is no session: call ckpt_init first");
    const Result<ckpt_start> started = session->session->ready();
    if (!started.has_value()) return fail(started.error(), CKPT_ERROR_MISMATCH);
    if (start != nullptr) *start = *started;
    return CKPT_OK;
  });
}

ckpt_status ckpt_barrier(ckpt_session* session) {
  if (__builtin_expect(session == nullptr, 0))
    return fail(CKPT_ERROR_INVALID, "There is no session: call ckpt_init first");
  if (__builtin_expect(session->request_word->load(std::memory_order_relaxed) == 0, 1)) return CKPT_OK;
  return slow_barrier(session);
}

ckpt_status ckpt_gang(ckpt_session* session, uint32_t* rank, uint32_t* ranks) {
  return with_session(session, [&](ckpt::job::Session& runtime) -> Result<void> {
    const auto [number, count] = runtime.gang();
    if (rank != nullptr) *rank = number;
    if (ranks != nullptr) *ranks = count;
    return ckpt::ok();
  });
}

ckpt_status ckpt_group_callbacks(ckpt_session* session, const char* name, const uint32_t* members,
                                 uint32_t count, const ckpt_group_ops* ops, void* user) {
  return with_session(session, [&](ckpt::job::Session& runtime) -> Result<void> {
    CKPT_TRY(checked, checked_name(name));
    if (members == nullptr || count == 0 || count > ckpt::local::kMaxRanks || ops == nullptr)
      return Error(ErrorCode::kInvalidArgument, "Group '" + checked + "' needs members and callbacks");
    return runtime.add_group(std::move(checked), {members, members + count}, *ops, user);
  });
}

ckpt_status ckpt_shutdown(ckpt_session* session) {
  return guarded([&] {
    if (session == nullptr) return fail(CKPT_ERROR_INVALID, "There is no session: call ckpt_init first");
    delete session;
    session_exists = false;
    return CKPT_OK;
  });
}

}  // extern "C"
