// The one part that knows Gloo: bytes between ranks by tag, over TCP.
//
// A port of Gloo's takes the first comer for the peer that it waits for. So ranks prove to each other that they know
// the group's key before anything else travels, and where one could not, all begin anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/peer_connector.h"
#include "lockstep/comm/peer_links.h"

namespace lockstep {

class GlooTransport {
 public:
  // A collective. The links carry addresses, and what came of them.
  GlooTransport(const Introduction& group, PeerLinks& links, const TimeLimit& limit);
  ~GlooTransport();

  // What one thread begins, and then waits for. All of it is that thread's.
  class Transfers {
   public:
    explicit Transfers(GlooTransport& transport);
    // Dropped early, no byte of the memory named is touched any more.
    ~Transfers();
    Transfers(const Transfers&) = delete;
    Transfers& operator=(const Transfers&) = delete;

    void receive(int source, std::uint64_t tag, void* data, std::size_t bytes);  // at most
    void send(int destination, std::uint64_t tag, const void* data, std::size_t bytes);

    enum class Result { done, timed_out, broken };
    struct Outcome {
      Result result = Result::done;
      int rank = -1;  // which one it was waiting for
    };
    // For all of them.
    Outcome wait(const TimeLimit& limit);

   private:
    friend class GlooTransport;
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

  // Ends all that is under way, and all that comes, as broken. From any thread.
  void break_off();

 private:
  bool try_connect(const Introduction& group, PeerLinks& links, const TimeLimit& limit);
  bool authenticate(const Introduction& group, const TimeLimit& limit);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
