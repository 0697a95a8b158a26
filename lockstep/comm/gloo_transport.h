// The one part that knows Gloo: bytes between ranks by tag, over TCP.
//
// A port of Gloo's takes the first comer for the peer that it waits for. So ranks prove to each other that they know
// the group's key before anything else travels, and where one could not, all begin anew.
#pragma once

#include <memory>

#include "lockstep/comm/pairwise_mesh.h"
#include "lockstep/comm/peer_connector.h"
#include "lockstep/comm/peer_links.h"

namespace lockstep {

class GlooTransport {
 public:
  // A collective. The links carry addresses, and what came of them.
  GlooTransport(const Introduction& group, PeerLinks& links, const TimeLimit& limit);
  ~GlooTransport();

  std::unique_ptr<Transfers> begin();
  // Ends all that is under way, and all that comes, as broken. From any thread.
  void break_off();

 private:
  bool try_connect(const Introduction& group, PeerLinks& links, const TimeLimit& limit);
  bool authenticate(const Introduction& group, const TimeLimit& limit);

  class PeerTransfers;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
