// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/criu_image/driver_listener.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>

#include "agent/host_process/criu_image/criu_records.h"
#include "libckpt/base/fd.h"
#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent::host {
namespace {

// Returns an encoded field of bytes, shorter than 128.
std::string field(int number, const std::string& bytes) {
  const int tag = number << 3 | 2;
  std::string out;
  if (tag >= 128) out += static_cast<char>(tag % 128 | 128);
  out += static_cast<char>(tag >= 128 ? tag / 128 : tag);
  return out + static_cast<char>(bytes.size()) + bytes;
}

// Returns CRIU's files.img with these Unix sockets, preceded by a file. The numbers are the fields of CRIU's
// images/{fdinfo,sk-unix}.proto: 1 and 2 are the kind and an id, 16 is the socket, 11 is its name.
std::string image_of(const std::vector<std::string>& names) {
  std::string image("\x19\x43\x56\x54\x38\x31\x30\x56", 8);
  put_record(image, std::string("\x08\x01\x10\x01", 4) + field(3, "a file"));
  for (const std::string& name : names)
    put_record(image,
               std::string("\x08\x05\x10\x02", 4) + field(16, std::string("\x08\x02", 2) + field(11, name)));
  return image;
}

std::string abstract_name(const std::string& text) {
  return std::string(1, '\0') + text;
}

std::string changed(const std::string& image, const std::string& taken) {
  const auto result = with_free_driver_names(
      image, [&](const std::string& name) { return name == taken; }, [] { return std::string("other"); });
  EXPECT_TRUE(result.has_value());
  return result.has_value() ? *result : "";
}

TEST(DriverListener, ListenerNameInUseIsReplaced) {
  const std::string image =
      image_of({abstract_name("cuda-uvmfd-7-12"), abstract_name("own"), abstract_name("cuda-uvmfd-7-13")});
  const std::string result = changed(image, "cuda-uvmfd-7-12");
  EXPECT_EQ(result.find("cuda-uvmfd-7-12"), std::string::npos);
  EXPECT_NE(result.find(abstract_name("cuda-uvmfd-other")), std::string::npos);
  EXPECT_NE(result.find(abstract_name("cuda-uvmfd-7-13")), std::string::npos) << "it is free";
  EXPECT_EQ(records_of(result, 8)->size(), 4u);
}

TEST(DriverListener, OtherSocketsAndFilesAreUnchanged) {
  const std::string image =
      image_of({abstract_name("own"), "/cuda-uvmfd-7-12", abstract_name("my-cuda-uvmfd-7")});
  EXPECT_EQ(changed(image, "own"), image);
}

TEST(DriverListener, MalformedImagesAreErrors) {
  const auto never = [](const std::string&) { return true; };
  const auto other = [] { return std::string("other"); };
  std::string image = image_of({abstract_name("cuda-uvmfd-7-12")});
  EXPECT_FALSE(with_free_driver_names(image.substr(0, image.size() - 1), never, other).has_value());
  EXPECT_FALSE(with_free_driver_names(image.substr(4), never, other).has_value());
  EXPECT_FALSE(with_free_driver_names("", never, other).has_value());
  image[image.find("cuda-uvmfd") - 2] = 127;  // the name's length
  EXPECT_FALSE(with_free_driver_names(image, never, other).has_value());
}

TEST(DriverListener, ANameIsInUseWhileASocketIsBoundToTheName) {
  const TemporaryFolder folder;
  // Driver 580.159.04 uses this name, with a zero at the end.
  const std::string name = "cuda-uvmfd-0-" + std::to_string(::getpid()) + std::string(1, '\0');
  const std::string image = image_of({abstract_name(name)});
  std::ofstream(folder / "files.img", std::ios::binary) << image;
  ASSERT_TRUE(free_driver_names(folder.path()).has_value());
  EXPECT_EQ(*read_file(folder / "files.img", 4096), image);
  const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, name.size());
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
  ASSERT_TRUE(free_driver_names(folder.path()).has_value());
  const std::string other = *read_file(folder / "files.img", 4096);
  EXPECT_EQ(other.find(name), std::string::npos);
  EXPECT_NE(other.find(abstract_name("cuda-uvmfd-")), std::string::npos);
}

}  // namespace
}  // namespace ckpt::agent::host
