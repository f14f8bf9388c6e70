// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/manual/completion.h"

#include <algorithm>

#include "libckpt/command_line/mistakes.h"

namespace ckpt::cli {
namespace {

constexpr const char* kFiles = ":file";

constexpr const char* kBash = R"(# Completion of gpumigrate in bash: source <(gpumigrate completion bash)
_gpumigrate() {
  local line=${COMP_LINE:0:COMP_POINT} prefix= current
  local -a words lines
  read -ra words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  current=${words[-1]}
  # bash also breaks words at = and :
  [[ $current == *[:=]* ]] && prefix=${current%"${current##*[:=]}"}
  mapfile -t lines < <("${words[0]}" __complete -- "${words[@]:1}" 2>/dev/null)
  if [[ ${lines[0]} == :file ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "${current#"$prefix"}")
    return
  fi
  COMPREPLY=("${lines[@]%%$'\t'*}")
  COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
}
complete -F _gpumigrate gpumigrate
)";

constexpr const char* kZsh = R"(#compdef gpumigrate
# Completion of gpumigrate in zsh: source <(gpumigrate completion zsh)
_gpumigrate() {
  local -a lines candidates
  local line name
  lines=("${(@f)$("${words[1]}" __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ ${lines[1]} == :file ]]; then
    _files
    return
  fi
  for line in "${lines[@]}"; do
    [[ -z $line ]] && continue
    name=${line%%$'\t'*}
    if [[ $line == *$'\t'* ]]; then
      candidates+=("${name//:/\\:}:${line#*$'\t'}")
    else
      candidates+=("${name//:/\\:}")
    fi
  done
  _describe gpumigrate candidates
}
compdef _gpumigrate gpumigrate
)";

constexpr const char* kFish = R"(# Completion of gpumigrate in fish: gpumigrate completion fish | source
function __gpumigrate_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l lines ($words[1] __complete -- $words[2..-1] "$current" 2>/dev/null)
    if test "$lines[1]" = :file
        __fish_complete_path "$current"
    else
        printf '%s\n' $lines
    end
end
complete -c gpumigrate -f -a '(__gpumigrate_complete)'
)";

// Returns the candidates that begin with the word, each with the prefix `before`, such as "--to=" for a
// value.
std::vector<std::string> fitting(const std::vector<std::string>& candidates, const std::string& begin,
                                 const std::string& before = {}) {
  std::vector<std::string> out;
  for (const std::string& candidate : candidates) {
    if (candidate.starts_with(begin)) out.push_back(before + candidate);
  }
  return out;
}

std::vector<std::string> values_of(const OptionDescription& option, const NamesOf& names_of) {
  if (!option.choices.empty()) return option.choices;
  const std::string& value = option.positional ? option.names.front() : option.value;
  return names_of(value);
}

std::vector<std::string> complete_value(const OptionDescription& option, const std::string& word,
                                        const NamesOf& names_of, const std::string& before = {}) {
  const std::string& value = option.positional ? option.names.front() : option.value;
  if (before.empty() && (value == "FILE" || value == "FOLDER" || value == "INTO")) return {kFiles};
  return fitting(values_of(option, names_of), word, before);
}

std::vector<std::string> option_candidates(const CommandDescription& command) {
  std::vector<std::string> out;
  for (const auto* options : {&command.options, &command.inherited}) {
    for (const OptionDescription& option : *options) {
      if (!option.positional && !option.hidden) out.push_back(option.names.back() + "\t" + option.help);
    }
  }
  return out;
}

std::vector<std::string> word_candidates(const NamedCommand& named, const std::string& word,
                                         const NamesOf& names_of) {
  std::vector<std::string> out;
  for (const CommandDescription& below : named.command.commands) {
    if (!below.hidden && named.positionals == 0) out.push_back(below.name() + "\t" + below.about);
  }
  out = fitting(out, word);
  std::size_t left = named.positionals;
  for (const OptionDescription& option : named.command.options) {
    if (!option.positional || (left > 0 && !option.repeats)) {
      left -= option.positional ? 1 : 0;
      continue;
    }
    const auto values = complete_value(option, word, names_of);
    out.insert(out.end(), values.begin(), values.end());
    break;
  }
  return out;
}

}  // namespace

std::vector<std::string> completions(const CommandDescription& program, const std::vector<std::string>& words,
                                     const NamesOf& names_of) {
  if (words.empty()) return {};
  const std::vector<std::string> before(words.begin(), words.end() - 1);
  const std::string& word = words.back();
  if (std::find(before.begin(), before.end(), "--") != before.end()) return {kFiles};
  const NamedCommand named = named_command(program, before);
  const OptionDescription* open = before.empty() ? nullptr : named.command.option(before.back());
  if (open != nullptr && !open->value.empty()) return complete_value(*open, word, names_of);
  if (!word.starts_with('-')) return word_candidates(named, word, names_of);
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos) return fitting(option_candidates(named.command), word);
  const OptionDescription* option = named.command.option(word.substr(0, equals));
  if (option == nullptr || option->value.empty()) return {};
  return complete_value(*option, word.substr(equals + 1), names_of, word.substr(0, equals + 1));
}

std::string completion_script(const std::string& shell) {
  if (shell == "bash") return kBash;
  return shell == "zsh" ? kZsh : kFish;
}

}  // namespace ckpt::cli
