// Internal: the secret of a job on one host to which nobody has given one. The store makes it, and hands it to the
// processes of its own user over a Unix socket, where the system tells each side whose process the other is. The port
// of the store says nothing about that: on loopback, it is open to all users.
#pragma once

#include <sys/types.h>

#include <string>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/net/tcp_socket.h"

namespace lockstep {

class UserSecret {
 public:
  // For the store that listens at this address of loopback.
  explicit UserSecret(const SocketAddress& store);

  const std::string& secret() const { return secret_; }
  // Readable when somebody asks.
  int fd() const { return listener_.get(); }
  // Answers one that asks, without waiting. Returns false if nobody does, with the system's error in errno.
  bool answer() const;

 private:
  const uid_t user_;
  const std::string secret_;
  const FileDescriptor listener_;
};

// Asks the store at the address `store` ("127.0.0.1:29500") for its secret. Throws StoreRefused if another user's
// process listens there or if it has a secret that was given to it, and ConnectionError if a retry may help.
std::string ask_for_secret(const std::string& store, Deadline deadline);

}  // namespace lockstep
