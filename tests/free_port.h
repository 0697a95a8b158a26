// A port for a server that a test is about to start.
#pragma once

#include <random>

#include "lockstep/net/tcp_store_server.h"

namespace lockstep {

// Nobody listens there, and the system gives it to nobody who asks for any port: those begin at 32768.
inline int free_port() {
  std::random_device random;
  for (;;) {
    const int port = 16'384 + static_cast<int>(random() % 16'000);
    try {
      return TcpStoreServer({.port = port}).port();
    } catch (const ListenError&) {
    }
  }
}

}  // namespace lockstep
