#include "lockstep/comm/process_group.h"

#include <gtest/gtest.h>

#include <memory>

#include "lockstep/net/tcp_store.h"
#include "lockstep/net/tcp_store_server.h"
#include "tests/environment_variable.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

TEST(ProcessGroup, GlooIsAnAliasOfHost) {
  const EnvironmentVariable no_secret("LOCKSTEP_SECRET", nullptr);
  const TcpStoreServer server;
  const auto store = std::make_shared<TcpStore>(TcpStoreOptions{.port = server.port()});
  const auto backend_of = [&](const char* name) {
    return std::string(init_process_group({.backend = name, .rank = 0, .world_size = 1, .store = store})->backend());
  };
  EXPECT_EQ(backend_of("host"), "host");
  EXPECT_EQ(backend_of("gloo"), "host");
  EXPECT_EQ(backend_of("auto"), "auto");
  EXPECT_ERROR(init_process_group({.backend = "glue"}),
               "backend \"glue\", expected auto, host (or gloo), mpi, or nccl");
}

}  // namespace
}  // namespace lockstep
