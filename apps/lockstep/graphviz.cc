#include "graphviz.h"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"

extern char** environ;

namespace lockstep::app {
namespace {

// A file in memory. It takes any amount without a reader, so using one for each end of a program cannot deadlock.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("lockstep", MFD_CLOEXEC)) {
    check(fd_ >= 0, "graphviz: {}", std::generic_category().message(errno));
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int fd() const { return fd_; }
  // The next reader begins at the start.
  void write(const std::string& text) const {
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t n = ::pwrite(fd_, text.data() + done, text.size() - done, static_cast<off_t>(done));
      check(n > 0 || errno == EINTR, "graphviz: {}", std::generic_category().message(errno));
      if (n > 0) done += static_cast<std::size_t>(n);
    }
  }
  std::string text() const {
    std::string all;
    char part[1 << 14];
    for (ssize_t n = 0; (n = ::pread(fd_, part, sizeof part, static_cast<off_t>(all.size()))) > 0;) {
      all.append(part, static_cast<std::size_t>(n));
    }
    return all;
  }

 private:
  int fd_;
};

}  // namespace

std::string svg_of_dot(const std::string& dot) {
  const MemoryFile in, out, errors;
  in.write(dot);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const auto& [file, number] : {std::pair(&in, 0), std::pair(&out, 1), std::pair(&errors, 2)}) {
    posix_spawn_file_actions_adddup2(&actions, file->fd(), number);
  }
  char program[] = "dot", format[] = "-Tsvg";
  char* arguments[] = {program, format, nullptr};
  pid_t child = 0;
  const int failed = posix_spawnp(&child, program, &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  check(failed != ENOENT,
        "Graphviz's program dot is not installed (Debian: apt-get install graphviz); a .dot file does not "
        "need it");
  check(failed == 0, "dot: {}", std::generic_category().message(failed));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "dot: {}", errors.text());
  return out.text();
}

}  // namespace lockstep::app
