// SPDX-License-Identifier: Apache-2.0
// Calls a fuzz target once for each input in the given packed corpora (*.pack), files and folders of files.
// The corpus is thus a test of every build. It fails if there is no input, or if a pack is incomplete. The
// format is described in corpus_pack.py, which writes it.
#include <bit>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace {

// The same magic and limits as in corpus_pack.py.
constexpr std::string_view kMagic("GMCORP\0\1", 8);
constexpr std::size_t kMaxFileBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxInputBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxNameBytes = 200;

static_assert(std::endian::native == std::endian::little, "packs have little-endian numbers");

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  std::fflush(stdout);
  std::fprintf(stderr, "replay: %s: %s\n", path.c_str(), what.c_str());
  std::exit(1);
}

std::string read_file(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) fail(path, "cannot be read: " + error.message());
  if (size > kMaxFileBytes) {
    fail(path, std::to_string(size) + " bytes, and at most " + std::to_string(kMaxFileBytes) + " are read");
  }
  std::string bytes(size, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(bytes.data(), static_cast<std::streamsize>(size))) {
    fail(path, std::string("cannot be read: ") + std::strerror(errno));
  }
  return bytes;
}

// A reader that takes a pack apart from its front. A truncated pack ends the program; the message names the
// offset and the missing part.
class PackReader {
 public:
  PackReader(std::string path, std::string_view bytes) : path_(std::move(path)), bytes_(bytes) {}

  std::string_view take(std::size_t count, const std::string& what) {
    if (count > bytes_.size() - position_) {
      fail(path_, "cut off at byte " + std::to_string(bytes_.size()) + ": " + what + " would end at byte " +
                      std::to_string(position_ + count));
    }
    position_ += count;
    return bytes_.substr(position_ - count, count);
  }
  template <class T>
  T number(const std::string& what) {
    T value{};
    std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
    return value;
  }
  [[noreturn]] void refuse(const std::string& what) const {
    fail(path_, "before byte " + std::to_string(position_) + ": " + what);
  }
  [[nodiscard]] bool at_end() const noexcept { return position_ == bytes_.size(); }

 private:
  std::string path_;
  std::string_view bytes_;
  std::size_t position_ = 0;
};

struct PackedInput {
  std::string_view name;
  std::string_view bytes;
};

// Checks a name, since unpacking makes files of the names. A name must not lead out of a folder, be hidden in
// it, or need quoting.
bool is_name(std::string_view name) {
  constexpr std::string_view kWord = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
  return !name.empty() && name.size() <= kMaxNameBytes && kWord.find(name.front()) != kWord.npos &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return kWord.find(c) != kWord.npos || c == '.' || c == '-'; });
}

// Reads all of a pack before any input is tried. A damaged pack thus fails as such, and not after half of its
// inputs.
std::vector<PackedInput> read_pack(const std::string& path, std::string_view bytes) {
  PackReader reader(path, bytes);
  if (reader.take(kMagic.size(), "the magic") != kMagic) {
    reader.refuse("this is no packed corpus of version 1");
  }
  const auto count = reader.number<std::uint32_t>("the count");
  std::vector<PackedInput> inputs;
  for (std::uint32_t i = 1; i <= count; ++i) {
    const auto which = "input " + std::to_string(i) + " of " + std::to_string(count);
    const auto name_bytes = reader.number<std::uint16_t>("the length of the name of " + which);
    const auto name = reader.take(name_bytes, "the name of " + which);
    if (!is_name(name)) reader.refuse(which + " has a name that is none");
    if (!inputs.empty() && name <= inputs.back().name) {
      reader.refuse("the name of " + which + " is out of order");
    }
    const auto input_bytes = reader.number<std::uint32_t>("the length of " + which);
    if (input_bytes > kMaxInputBytes) {
      reader.refuse(which + " has " + std::to_string(input_bytes) + " bytes, and at most " +
                    std::to_string(kMaxInputBytes) + " are allowed");
    }
    inputs.push_back({name, reader.take(input_bytes, which)});
  }
  if (!reader.at_end()) reader.refuse("something follows the last input");
  return inputs;
}

void replay_input(const std::string& name, std::string_view bytes) {
  // The input's name is printed before the input is tried, so that the last line before a crash names the
  // cause.
  std::printf("%s\n", name.c_str());
  std::fflush(stdout);
  // The input is copied, so that AddressSanitizer detects reads beyond its end.
  const std::vector<std::uint8_t> own(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(own.data(), own.size());
}

std::size_t replay(const std::filesystem::path& path) {
  std::size_t count = 0;
  // A path without a readable status is treated as a file: reading it fails with the reason.
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    for (const auto& entry : std::filesystem::directory_iterator(path)) count += replay(entry.path());
    return count;
  }
  const auto bytes = read_file(path);
  if (path.extension() != ".pack") {
    replay_input(path, bytes);
    return 1;
  }
  for (const auto& input : read_pack(path, bytes)) {
    replay_input(path.string() + ": " + std::string(input.name), input.bytes);
    ++count;
  }
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t count = 0;
  for (int i = 1; i < argc; ++i) count += replay(argv[i]);
  std::printf("%zu inputs\n", count);
  if (count == 0) fail(argc > 1 ? argv[1] : "no file", "there is no input to replay");
  return 0;
}
