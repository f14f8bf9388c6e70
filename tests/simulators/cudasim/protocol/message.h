// SPDX-License-Identifier: Apache-2.0
// Requests from the library to an executor over their Unix socket (SOCK_SEQPACKET). Each request has at most
// one descriptor and one reply. The comments of the requests list the values of `a`, the name and the
// descriptor; "->" introduces the reply. Both ends belong to one build and one program, so the structs are
// sent unchanged.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cudasim {

enum class Request : std::uint32_t {
  kHello,  // a: physical device, context number, program pid; descriptor: ContextShared -> a: executor pid
  kMemoryCreate,   // a: bytes, exportable -> a: memory id
  kMemoryImport,   // descriptor -> a: memory id, bytes, physical device
  kMemoryAttach,   // a: physical device; descriptor of a peer's memory -> a: memory id
  kMemoryExport,   // a: memory id -> descriptor
  kMemoryNumber,   // a: memory id -> a: descriptor in the executor, st_dev, st_ino
  kMemoryDrop,     // a: memory id
  kMap,            // a: memory id, address, writable
  kUnmap,          // a: address, bytes
  kHostMap,        // a: address, bytes; descriptor
  kStreamOpen,     // a: slot
  kModuleLoad,     // a: address of its variables or 0; descriptor -> a: module id, address of its variables
  kModuleSave,     // a: module id -> a: bytes; descriptor of its variables' content
  kModuleRestore,  // a: module id; descriptor that kModuleSave returned
  kModuleUnload,   // a: module id
  kFunction,       // a: module id; name -> a: address; parameters
  kGlobal,         // a: module id; name -> a: address, bytes
};

struct RequestMessage {
  Request request;
  std::uint64_t a[4];
  char name[1024];
};

struct ReplyMessage {
  std::uint32_t result;  // a CUresult
  std::uint32_t count;
  std::uint64_t a[4];
  struct {
    std::uint32_t size;
    std::uint32_t align;
  } parameters[64];
};

// Sends one message with `fd` unless `fd` is -1. Returns false when the other end is closed.
bool send_message(int socket, const void* message, std::size_t bytes, int fd);
// Receives one whole message of exactly `bytes`, and its descriptor (close-on-exec) or -1. Returns false at
// the end of the connection.
bool receive_message(int socket, void* message, std::size_t bytes, int* fd);

}  // namespace cudasim
