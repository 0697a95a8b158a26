#include "lockstep/launch/output_writer.h"

#include <exception>

namespace lockstep {

OutputWriter::OutputWriter(Write write) : write_(std::move(write)), thread_([this] { write_all(); }) {}

OutputWriter::~OutputWriter() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void OutputWriter::push(bool is_error, std::string_view line) {
  {
    const std::lock_guard lock(mutex_);
    lines_.emplace_back(is_error, line);
    bytes_ += line.size();
  }
  changed_.notify_one();
}

bool OutputWriter::full() const {
  const std::lock_guard lock(mutex_);
  return bytes_ >= kMostBytes;
}

std::optional<std::string> OutputWriter::gone() const {
  const std::lock_guard lock(mutex_);
  return gone_;
}

void OutputWriter::write_all() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closing_ || !lines_.empty(); });
    if (lines_.empty()) return;
    const auto [is_error, line] = std::move(lines_.front());
    lines_.pop_front();
    if (!is_gone_[is_error]) {
      std::optional<std::string> failure;
      lock.unlock();
      try {
        write_(is_error, line);
      } catch (const std::exception& error) {
        failure = error.what();
      }
      lock.lock();
      if (failure) {
        is_gone_[is_error] = true;
        if (!gone_) gone_ = failure;
      }
    }
    bytes_ -= line.size();
  }
}

}  // namespace lockstep
