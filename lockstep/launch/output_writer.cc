#include "lockstep/launch/output_writer.h"

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

void OutputWriter::write_all() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closing_ || !lines_.empty(); });
    if (lines_.empty()) return;
    const auto [is_error, line] = std::move(lines_.front());
    lines_.pop_front();
    lock.unlock();
    write_(is_error, line);
    lock.lock();
    bytes_ -= line.size();
  }
}

}  // namespace lockstep
