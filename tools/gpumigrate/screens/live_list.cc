// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/screens/live_list.h"

#include <optional>

#include "tools/gpumigrate/client/table.h"
#include "tools/gpumigrate/screens/frame.h"

namespace ckpt::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kRefresh{1000};

void print_once(Context& context, const ListAnswer& answer) {
  if (context.json) {
    context.print(answer.list);
    return;
  }
  context.out << answer.view(context.layout()) << std::flush;
  if (!answer.footer.empty()) context.err << printable(answer.footer) << "\n" << std::flush;
}

class Watch {
 public:
  Watch(Context& context, const AskList& ask) : context_(context), ask_(ask) {}

  // Shows the list until Ctrl-C or SIGTERM.
  int run() {
    HttpClient& http = context_.coordinator.http();
    http.catch_interrupts();
    bool known = false;
    while (http.consume_interrupts() == 0) {
      auto answer = ask_(context_);
      if (answer) {
        known = true;
        lost_since_.reset();
        show(*answer);
      } else if (answer.error().code() != ErrorCode::kAborted) {
        if (!known || !survives(answer.error())) return report(context_, answer.error());
      }
      http.pause(kRefresh);
    }
    return kDone;
  }

 private:
  void show(const ListAnswer& answer) {
    if (context_.json) {
      const std::string line = answer.list.dump(-1, ' ', false, Json::error_handler_t::replace);
      if (std::exchange(shown_text_, line) != line) context_.out << line << "\n" << std::flush;
    } else if (context_.screen.terminal) {
      draw(answer);
    } else {
      Layout ageless = context_.layout();
      ageless.ages = false;
      const std::string key = answer.view(ageless);
      context_.out << news(shown_text_, key, answer.view(context_.layout())) << std::flush;
      shown_text_ = key;
    }
  }
  void draw(const ListAnswer& answer) {
    const ScreenSize size = context_.screen.size();
    std::string text = answer.view(context_.layout());
    if (!answer.footer.empty()) text += shortened(printable(answer.footer), size.columns) + "\n";
    // A narrower window has wrapped lines, which cannot be counted. So the list is drawn from the top.
    if (size.columns < columns_) {
      context_.out << "\x1b[H\x1b[2J";
      frame_.clear();
    }
    columns_ = size.columns;
    Frame next = frame_of(text, size);
    context_.out << redraw(frame_, next) << std::flush;
    frame_ = std::move(next);
  }
  bool survives(const Error& error) {
    if (error.code() != ErrorCode::kUnavailable && error.code() != ErrorCode::kTimedOut) return false;
    if (!lost_since_) {
      context_.note(error.message() + "; retrying");
      frame_.clear();  // the note is shown below the frame
      lost_since_ = Clock::now();
    }
    return Clock::now() - *lost_since_ < context_.patience;
  }

  Context& context_;
  const AskList& ask_;
  Frame frame_;
  std::size_t columns_ = 0;
  std::string shown_text_;
  std::optional<Clock::time_point> lost_since_;
};

}  // namespace

int show_list(Context& context, const AskList& ask, bool watch) {
  if (watch) return Watch(context, ask).run();
  auto answer = ask(context);
  if (!answer) return report(context, answer.error());
  print_once(context, *answer);
  return kDone;
}

}  // namespace ckpt::cli
