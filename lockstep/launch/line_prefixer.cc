#include "lockstep/launch/line_prefixer.h"

#include <algorithm>
#include <utility>

namespace lockstep {

LinePrefixer::LinePrefixer(std::string prefix, std::function<void(std::string_view)> write)
    : prefix_(std::move(prefix)), write_(std::move(write)), line_(prefix_) {}

void LinePrefixer::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t room = prefix_.size() + kLongestLine - line_.size();
    const std::size_t end = bytes.find('\n');
    const std::size_t count = std::min({bytes.size(), end, room});
    line_ += bytes.substr(0, count);
    bytes.remove_prefix(count);
    if (!bytes.empty() && bytes.front() == '\n') {
      bytes.remove_prefix(1);
    } else if (count < room) {
      return;  // the line continues
    }
    line_ += '\n';
    write_(line_);
    line_ = prefix_;
  }
}

void LinePrefixer::finish() {
  if (line_.size() > prefix_.size()) feed("\n");
}

}  // namespace lockstep
