// A store that listens but does not answer, as on a host that has stopped or is overloaded.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "lockstep/net/peer_connector.h"
#include "lockstep/net/tcp_socket.h"
#include "lockstep/net/tcp_store.h"
#include "lockstep/net/tcp_store_server.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// A process that can be stopped. `body` gets the pipe through which it says a number when it is ready.
class Stoppable {
 public:
  explicit Stoppable(const std::function<int(int pipe)>& body) {
    int ends[2];
    check(::pipe(ends) == 0, "pipe");
    const FileDescriptor read_end(ends[0]);
    FileDescriptor write_end(ends[1]);
    process_ = ::fork();
    if (process_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      int status = 100;
      try {
        status = body(write_end.get());
      } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
      }
      ::_exit(status);
    }
    write_end.reset();
    check(::read(read_end.get(), &number_, sizeof number_) == sizeof number_, "the process did not start");
  }
  ~Stoppable() {
    if (process_ < 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  Stoppable(const Stoppable&) = delete;
  Stoppable& operator=(const Stoppable&) = delete;

  int number() const { return number_; }
  void stop() const {
    ::kill(process_, SIGSTOP);
    ::waitpid(process_, nullptr, WUNTRACED);
  }
  void go_on() const { ::kill(process_, SIGCONT); }
  int exit_status() {
    int status = 0;
    ::waitpid(std::exchange(process_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t process_ = -1;
  int number_ = 0;
};

void say(int pipe, int number) { check(::write(pipe, &number, sizeof number) == sizeof number, "write"); }

// Says its port.
int serve(int pipe) {
  const TcpStoreServer server;
  say(pipe, server.port());
  for (;;) ::pause();
}

TEST(SilentStore, IsAnErrorOfItsOwn) {
  const Stoppable server(serve);
  TcpStore store({.port = server.number(), .timeout = 300ms});
  store.set("key", "value");
  server.stop();
  EXPECT_THROW(store.contains("key"), NoAnswer) << "on the connection that it has";
  EXPECT_THROW(store.contains("key"), NoAnswer) << "on a new one";
  server.go_on();
  EXPECT_EQ(TcpStore({.port = server.number()}).get("key", 0ms), "value");
}

TEST(SilentStore, IsNotAStoreThatIsGone) {
  auto server = std::make_unique<TcpStoreServer>();
  TcpStore store({.port = server->port(), .timeout = 300ms});
  server.reset();
  for (int i = 0; i < 2; ++i) {
    try {
      store.contains("key");
      ADD_FAILURE() << "no error";
    } catch (const NoAnswer& error) {
      ADD_FAILURE() << error.what();
    } catch (const ConnectionError&) {
    }
  }
}

// The wait for a rank counts a long call as a moment, so many such calls would take many times its limit.
TEST(SilentStore, EndsTheWaitForARank) {
  const Stoppable server(serve);
  const auto store = std::make_shared<TcpStore>(TcpStoreOptions{.port = server.number(), .timeout = 300ms});
  server.stop();
  const GroupMembership group{.rank = 0, .size = 2, .store = store, .key = "", .address = ""};
  EXPECT_THROW(read_record(group, 1, "address of rank 1", TimeLimit(20s)), NoAnswer);
}

// A batch system suspends a whole job, and its processes go on one after the other.
TEST(SilentStore, IsNotOneThatWasSuspendedWithItsClient) {
  const Stoppable server(serve);
  Stoppable client([&](int pipe) {
    TcpStore store({.port = server.number(), .timeout = 3s});
    say(pipe, 1);
    while (!store.contains("end")) std::this_thread::sleep_for(1ms);
    return 0;
  });
  server.stop();
  std::this_thread::sleep_for(100ms);
  client.stop();
  std::this_thread::sleep_for(3500ms);
  client.go_on();
  std::this_thread::sleep_for(100ms);
  server.go_on();
  TcpStore({.port = server.number()}).set("end", "");
  EXPECT_EQ(client.exit_status(), 0);
}

}  // namespace
}  // namespace lockstep
