// SPDX-License-Identifier: Apache-2.0
// Tests of command lines: help that fits the width, empty values and misspelled names.
#include "libckpt/command_line/command_line.h"

#include <gtest/gtest.h>

#include <sstream>

#include "libckpt/command_line/help.h"
#include "libckpt/command_line/mistakes.h"

namespace ckpt {
namespace {

// A program with a few commands, and the arguments that the commands received.
struct Program {
  Program() {
    line.pass_unknown_options_up();
    line.require_subcommand();
    line.set_columns(60);
    line.add_option("-o,--output", form, "table or json").called("FORM").one_of({"table", "json"});
    Command move = line.add_subcommand("migrate", "Move a running job to another GPU");
    move.add_option("job", job, "Name or id").required();
    move.add_option("--to", to, "Where to: a node or a GPU of a node; otherwise it is chosen")
        .called("PLACE");
    move.add_option("--parallel", parallel, "Moves at a time").in_range(1, 64);
    move.add_option("--env", env, "A variable; may be repeated").called("NAME=VALUE").one_value_each();
    move.add_option("--xid", xids, "Numbers");
    move.add_flag("--dry-run", dry, "Touch nothing");
    line.add_subcommand("jobs", "List jobs");
    line.add_subcommand("secret", "Not shown").hide();
  }
  std::string mistake(const std::vector<std::string>& words) {
    const auto end = line.parse(words);
    return end ? end->message : "";
  }

  CommandLine line{"Moves jobs", "program"};
  std::string form;
  std::string job;
  std::string to;
  int parallel = 0;
  std::vector<std::string> env;
  std::vector<unsigned> xids;
  bool dry = false;
};

TEST(CommandLineTest, AnEmptyValueIsAnErrorThatNamesTheOption) {
  const std::vector<std::vector<std::string>> lines = {{"migrate", "j1", "--to", ""},
                                                       {"migrate", "--to=", "j1"},
                                                       {"migrate", "--to", "", "j1"},
                                                       {"migrate", "j1", "--to", "a", "-o", ""}};
  for (const auto& words : lines) {
    const std::string message = Program().mistake(words);
    EXPECT_NE(message.find("is empty; is a variable unset?"), std::string::npos) << message;
    EXPECT_NE(message.find(words.back() == "" && words.size() > 5 ? "-o" : "--to"), std::string::npos)
        << message;
  }
  EXPECT_EQ(Program().mistake({"migrate", ""}), "the value of JOB is empty; is a variable unset?");
  EXPECT_EQ(Program().mistake({"migrate", "j1", "--env", "A=", "--env", ""}),
            "the value of --env is empty; is a variable unset?");
  EXPECT_EQ(Program().mistake({"migrate", "j1", "--xid", "1", ""}),
            "the value of --xid is empty; is a variable unset?");
}

TEST(CommandLineTest, AnOptionIsNotTakenAsAValue) {
  Program program;
  EXPECT_EQ(program.mistake({"migrate", "j1", "--to", "--dry-run"}),
            "--to needs a value (PLACE), but the option --dry-run follows");
  EXPECT_FALSE(program.dry);
  EXPECT_EQ(Program().mistake({"migrate", "j1", "--to"}), "--to needs a value (PLACE)");
}

TEST(CommandLineTest, AMisspelledNameGetsASuggestion) {
  EXPECT_EQ(Program().mistake({"jbos"}), "there is no command \"jbos\" of `program`; did you mean jobs?");
  EXPECT_EQ(Program().mistake({"migrate", "j1", "--too", "b"}),
            "`program migrate` has no option \"--too\"; did you mean --to?");
  EXPECT_EQ(Program().mistake({"jobs", "--outptu", "json"}),
            "`program jobs` has no option \"--outptu\"; did you mean --output?");
  EXPECT_EQ(Program().mistake({"frobnicate"}), "there is no command \"frobnicate\" of `program`");
  EXPECT_EQ(Program().mistake({"secre"}), "there is no command \"secre\" of `program`");
  EXPECT_EQ(nearest("mig", {"jobs", "migrate"}), "migrate");
  EXPECT_EQ(nearest("x", {"a", "b"}), "a");
  EXPECT_EQ(nearest(std::string(1 << 20, 'a'), {"jobs"}), std::nullopt);
}

TEST(CommandLineTest, InvalidValuesAreReportedInPlainWords) {
  EXPECT_EQ(Program().mistake({"migrate", "j", "--parallel", "65"}),
            "--parallel: \"65\" is not a number from 1 to 64");
  EXPECT_EQ(Program().mistake({"migrate", "j", "-o", "jsn"}),
            "--output: \"jsn\" is not one of table, json; did you mean json?");
  EXPECT_EQ(Program().mistake({"migrate"}), "JOB is missing: `program migrate JOB`");
  EXPECT_NE(Program().mistake({"migrate", "j", "--xid", "-1"}), "");
  EXPECT_NE(Program().mistake({"migrate", "j", "--parallel", "99999999999999999999"}), "");
}

TEST(CommandLineTest, ValidArgumentsAreAccepted) {
  Program program;
  EXPECT_EQ(program.mistake(
                {"migrate", "--env", "A=1", "j1", "--env", "B=", "--to=b", "-ojson", "--xid", "3", "4"}),
            "");
  EXPECT_EQ(program.job, "j1");
  EXPECT_EQ(program.env, (std::vector<std::string>{"A=1", "B="}));
  EXPECT_EQ(program.form, "json");
  EXPECT_EQ(program.xids, (std::vector<unsigned>{3, 4}));
}

TEST(CommandLineTest, HelpIsCompleteAndShowsNoLibraryTypes) {
  Program program;
  const auto end = program.line.parse(std::vector<std::string>{"migrate", "--help"});
  ASSERT_TRUE(end);
  EXPECT_EQ(end->exit_code, 0);
  EXPECT_EQ(end->out,
            "Move a running job to another GPU\n"
            "\n"
            "Usage: program migrate JOB [OPTIONS]\n"
            "\n"
            "Arguments:\n"
            "  JOB  Name or id\n"
            "\n"
            "Options:\n"
            "  --to PLACE         Where to: a node or a GPU of a node;\n"
            "                     otherwise it is chosen\n"
            "  --parallel NUMBER  Moves at a time; 1 to 64\n"
            "  --env NAME=VALUE   A variable; may be repeated\n"
            "  --xid NUMBER       Numbers\n"
            "  --dry-run          Touch nothing\n"
            "  -o, --output FORM  table or json\n"
            "  -h, --help         Print this help\n");
}

TEST(CommandLineTest, HelpLinesFitTheTerminalWidth) {
  const CommandDescription description = Program().line.describe();
  for (const unsigned columns : {40U, 60U, 80U, 200U}) {
    for (const CommandDescription& command : description.commands) {
      std::istringstream lines(help_text(command, columns));
      for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), columns) << line;
    }
  }
}

TEST(CommandLineTest, MissingCommandPrintsHelpAndAnError) {
  const auto end = Program().line.parse(std::vector<std::string>{});
  ASSERT_TRUE(end);
  EXPECT_TRUE(end->bare);
  EXPECT_NE(end->out.find("  migrate  Move a running job"), std::string::npos) << end->out;
  EXPECT_EQ(end->out.find("secret"), std::string::npos) << end->out;
}

TEST(CommandLineTest, NonAsciiCharactersAreCountedAsOneColumn) {
  EXPECT_EQ(wrapped("ä ö ü", 3, 0), "ä ö\nü");
  EXPECT_EQ(wrapped("a  b\n c", 80, 4), "a b c");
}

}  // namespace
}  // namespace ckpt
