// Jobs on one host without a secret: a store admits the processes of its own user, and nobody else.
#include "lockstep/net/user_secret.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <string>

#include "lockstep/net/store_protocol.h"
#include "lockstep/net/tcp_store.h"
#include "lockstep/net/tcp_store_server.h"
#include "lockstep/net/unix_socket.h"
#include "tests/expect_error.h"
#include "tests/net/raw_client.h"
#include "tests/process_limits.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

constexpr uid_t kNobody = 65534;

// What a process of another user says, whose `body` returns it.
std::string said_by_nobody(const std::function<std::string()>& body) {
  int ends[2];
  check(::pipe(ends) == 0, "pipe");
  const FileDescriptor read_end(ends[0]);
  FileDescriptor write_end(ends[1]);
  const int status = status_of_process([&] {
    if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) return 1;
    std::string said;
    try {
      said = body();
    } catch (const Error& error) {
      said = std::string("error: ") + error.what();
    }
    return ::write(write_end.get(), said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 2;
  });
  write_end.reset();
  EXPECT_EQ(status, 0);
  std::array<char, 4096> said;
  return {said.data(),
          static_cast<std::size_t>(std::max<ssize_t>(0, ::read(read_end.get(), said.data(), said.size())))};
}

// Everything that the Unix socket of a store answers.
std::string answer_of(const std::string& store) {
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress address = abstract_address("lockstep-secret-" + store);
  check(::connect(socket.get(), address.get(), address.size()) == 0, "connect");
  std::string answer;
  std::array<char, 256> bytes;
  for (ssize_t n; (n = ::recv(socket.get(), bytes.data(), bytes.size(), 0)) > 0;)
    answer.append(bytes.data(), static_cast<std::size_t>(n));
  return answer;
}

TEST(UserSecret, IsForEachJobAnother) {
  const TcpStoreServer one, two;
  EXPECT_EQ(answer_of(one.address()).size(), 65u);
  EXPECT_EQ(answer_of(one.address()), answer_of(one.address()));
  EXPECT_NE(answer_of(one.address()), answer_of(two.address()));
  TcpStore({.port = one.port()}).set("key", "value");
  EXPECT_EQ(TcpStore({.port = one.port()}).get("key", 0ms), "value");
}

// The proof is that of a job with a secret, although nobody has given one.
TEST(UserSecret, WhoOnlyReachesThePortProvesNothing) {
  const TcpStoreServer server;
  RawClient client(server.port());
  const std::string greeting = client.receive(kStoreGreetingBytes), nonce(kStoreNonceBytes, 'c');
  client.send(nonce + store_client_hmac("", greeting.substr(kStoreMagic.size()), nonce));
  EXPECT_EQ(client.receive(kStoreAnswerBytes).substr(0, 1), "r");
  EXPECT_TRUE(client.is_closed());
}

TEST(UserSecret, AStoreWithAGivenSecretAnswersNobody) {
  const TcpStoreServer server({.secret = "the secret of this job"});
  EXPECT_ERROR(answer_of(server.address()), "connect");
  EXPECT_ERROR(TcpStore({.port = server.port()}),
               "does not accept a client without a secret: it belongs to another job or host, or set LOCKSTEP_SECRET");
}

TEST(UserSecret, AProcessOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be two users";
  const TcpStoreServer server;
  EXPECT_EQ(said_by_nobody([&] { return answer_of(server.address()); }), "n");
  const std::string error = said_by_nobody([&] {
    TcpStore({.port = server.port()}).set("key", "value");
    return std::string("admitted");
  });
  EXPECT_EQ(error, fmt::format("error: store: {} belongs to a process of user 0, this process to user 65534: without a "
                               "secret, a job has the processes of one user; choose another port, or set "
                               "LOCKSTEP_SECRET, or LOCKSTEP_SECRET_FILE, to the same random text for all ranks "
                               "(openssl rand -hex 32)",
                               server.address()));
  EXPECT_FALSE(TcpStore({.port = server.port()}).contains("key"));
}

// Another user's store would learn what this process does, and could tell it anything.
TEST(UserSecret, AStoreOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be two users";
  int ready[2], done[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(done), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    if (::setuid(kNobody) != 0) ::_exit(1);
    const TcpStoreServer server;
    const int port = server.port();
    char byte;
    (void)!::write(ready[1], &port, sizeof port);
    (void)!::read(done[0], &byte, 1);
    ::_exit(0);
  }
  int port = 0, status = 0;
  ASSERT_EQ(::read(ready[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
  EXPECT_ERROR(TcpStore({.port = port}), "belongs to a process of user 65534, this process to user 0");
  EXPECT_EQ(::write(done[1], "x", 1), 1);
  ::waitpid(child, &status, 0);
  for (const int fd : {ready[0], ready[1], done[0], done[1]}) ::close(fd);
}

// Outside of a user namespace, all numbers are users of their own.
TEST(UnixSocket, ANumberMayStandForManyUsers) {
  EXPECT_TRUE(stands_for_one_user(0));
  EXPECT_TRUE(stands_for_one_user(1000));
  const int status = status_of_process([] {
    if (::unshare(CLONE_NEWUSER) != 0) return kNoFilter;
    return stands_for_one_user(kNobody) ? 1 : stands_for_one_user(0) ? 0 : 2;
  });
  if (status == kNoFilter) GTEST_SKIP() << "no user namespaces here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace lockstep
