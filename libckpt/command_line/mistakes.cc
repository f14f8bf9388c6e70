// SPDX-License-Identifier: Apache-2.0
#include "libckpt/command_line/mistakes.h"

#include <algorithm>
#include <numeric>

namespace ckpt {
namespace {

constexpr std::size_t kLongestWord = 64;  // the maximum length in bytes of a word that is compared with names
                                          // or quoted whole

// Returns the edit distance in which two swapped neighbors count once (optimal string alignment).
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  std::iota(d[0].begin(), d[0].end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    d[i][0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      d[i][j] =
          std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

bool is_option(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9') && word[1] != '.';
}

// A reader of words that proceeds in the same way as the parser.
class Reader {
 public:
  Reader(const CommandDescription& program, const std::vector<std::string>& words)
      : command_(&program), words_(words) {
    const auto asks = [](const std::string& word) { return word == "--help" || word == "-h"; };
    help_ = std::any_of(words.begin(), words.end(), asks);
  }

  std::optional<Mistake> read() {
    for (; at_ < words_.size() && !mistake_ && words_[at_] != "--"; ++at_) {
      const std::string& word = words_[at_];
      if (!is_option(word)) {
        read_word(word);
      } else if (word[1] == '-') {
        read_long(word);
      } else {
        read_short(word);
      }
    }
    if (!mistake_ && !help_) check_missing();
    return mistake_;
  }
  [[nodiscard]] const CommandDescription& command() const { return *command_; }
  [[nodiscard]] std::size_t positionals_given() const { return positionals_; }

 private:
  void fail(const std::string& message, bool surplus = false) { mistake_ = Mistake{message, surplus}; }

  std::vector<const OptionDescription*> positionals() const {
    std::vector<const OptionDescription*> found;
    for (const OptionDescription& option : command_->options) {
      if (option.positional) found.push_back(&option);
    }
    return found;
  }

  std::vector<std::string> option_names() const {
    std::vector<std::string> names;
    for (const auto* options : {&command_->options, &command_->inherited}) {
      for (const OptionDescription& option : *options) {
        if (!option.positional && !option.hidden)
          names.insert(names.end(), option.names.begin(), option.names.end());
      }
    }
    return names;
  }

  void read_word(const std::string& word) {
    if (const CommandDescription* below = positionals_ == 0 ? command_->find(word) : nullptr) {
      command_ = below;
      return;
    }
    const auto accepted = positionals();
    if (!accepted.empty() && (positionals_ < accepted.size() || accepted.back()->repeats)) {
      const OptionDescription& option = *accepted[std::min(positionals_++, accepted.size() - 1)];
      if (word.empty()) fail_empty(option.names.front());
      return;
    }
    if (command_->needs_command) {
      std::vector<std::string> names;
      for (const CommandDescription& each : command_->commands) {
        if (!each.hidden) names.push_back(each.name());
      }
      fail("there is no command " + quoted(word) + " of `" + command_->path + "`" + suggestion(word, names));
      return;
    }
    fail("`" + command_->path + "` does not accept " + quoted(word), true);
  }

  void read_long(const std::string& word) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const OptionDescription* option = command_->option(name);
    if (option == nullptr) {
      if (!help_)
        fail("`" + command_->path + "` has no option " + quoted(name) + suggestion(name, option_names()),
             true);
      return;
    }
    if (equals == std::string::npos) {
      if (!option->value.empty()) read_value(*option, name);
      return;
    }
    if (equals + 1 == word.size()) fail_empty(name);
  }

  void read_short(const std::string& word) {
    for (std::size_t i = 1; i < word.size(); ++i) {
      const std::string name = std::string("-") + word[i];
      const OptionDescription* option = command_->option(name);
      if (option == nullptr) {
        if (!help_)
          fail("`" + command_->path + "` has no option " + quoted(name) + suggestion(word, option_names()),
               true);
        return;
      }
      if (option->value.empty()) continue;
      if (i + 1 == word.size()) read_value(*option, name);
      return;
    }
  }

  // Reads the word after `name`, and the words after that if the option takes all words.
  void read_value(const OptionDescription& option, const std::string& name) {
    const bool missing = at_ + 1 >= words_.size() || words_[at_ + 1] == "--";
    if (missing || (is_option(words_[at_ + 1]) && is_known(words_[at_ + 1]))) {
      if (help_) return;
      fail(name + " needs a value (" + option.value + ")" +
           (missing ? "" : ", but the option " + words_[at_ + 1] + " follows"));
      return;
    }
    do {
      ++at_;
      if (words_[at_].empty()) return fail_empty(name);
    } while (option.greedy && at_ + 1 < words_.size() && !is_option(words_[at_ + 1]) &&
             words_[at_ + 1] != "--");
  }

  [[nodiscard]] bool is_known(const std::string& word) const {
    return command_->option(word.substr(0, word.find('='))) != nullptr;
  }

  void fail_empty(const std::string& name) {
    fail("the value of " + name + " is empty; is a variable unset?");
  }

  void check_missing() {
    const auto all = positionals();
    for (std::size_t i = positionals_; i < all.size(); ++i) {
      if (all[i]->required) return fail(all[i]->names.front() + " is missing: " + form());
    }
    for (const OptionDescription& option : command_->options) {
      if (option.positional || !option.required) continue;
      const auto given = [&](const std::string& word) {
        return option.is_named(word.substr(0, word.find('=')));
      };
      if (std::none_of(words_.begin(), words_.end(), given))
        return fail(option.names.back() + " " + option.value + " is missing: " + form());
    }
  }

  [[nodiscard]] std::string form() const {
    std::string out = "`" + command_->path;
    for (const OptionDescription& option : command_->options) {
      if (option.positional && option.required) out += " " + option.names.front();
      if (!option.positional && option.required) out += " " + option.names.back() + " " + option.value;
    }
    return out + "`";
  }

  const CommandDescription* command_;
  const std::vector<std::string>& words_;
  std::size_t at_ = 0;
  std::size_t positionals_ = 0;
  bool help_ = false;
  std::optional<Mistake> mistake_;
};

}  // namespace

std::string quoted(const std::string& word) {
  std::string out = "\"";
  for (const char c : word.substr(0, kLongestWord)) out += static_cast<unsigned char>(c) < ' ' ? '?' : c;
  return out + (word.size() > kLongestWord ? "...\"" : "\"");
}

bool OptionDescription::is_named(const std::string& name) const {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string CommandDescription::name() const {
  return path.substr(path.rfind(' ') + 1);
}

const CommandDescription* CommandDescription::find(const std::string& command) const {
  const auto found = std::find_if(commands.begin(), commands.end(),
                                  [&](const CommandDescription& each) { return each.name() == command; });
  return found == commands.end() ? nullptr : &*found;
}

const OptionDescription* CommandDescription::option(const std::string& name) const {
  for (const auto* all : {&options, &inherited}) {
    for (const OptionDescription& each : *all) {
      if (!each.positional && each.is_named(name)) return &each;
    }
  }
  return nullptr;
}

std::optional<std::string> nearest(const std::string& word, const std::vector<std::string>& names) {
  if (word.size() > kLongestWord) return std::nullopt;
  std::optional<std::string> best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& name : names) {
    const std::size_t far = distance(word, name);
    const bool begins = word.size() >= 3 && name.starts_with(word);
    if (far < best_distance || (begins && !best)) {
      best = name;
      best_distance = std::min(best_distance, far);
    }
  }
  return best;
}

std::string suggestion(const std::string& word, const std::vector<std::string>& names) {
  const auto near = nearest(word, names);
  return near ? "; did you mean " + *near + "?" : "";
}

std::optional<Mistake> find_mistake(const CommandDescription& program,
                                    const std::vector<std::string>& arguments) {
  return Reader(program, arguments).read();
}

NamedCommand named_command(const CommandDescription& program, const std::vector<std::string>& arguments) {
  Reader reader(program, arguments);
  static_cast<void>(reader.read());
  return {reader.command(), reader.positionals_given()};
}

}  // namespace ckpt
