// Signals that end `train` after the current step, with a checkpoint.
#pragma once

#include "lockstep/train/trainer.h"

namespace lockstep::app {

// Must be the first call in main(). Ignores SIGHUP again if it was ignored when the process started (nohup), because
// libraries may set a handler before main(), as UCX does, which Debian 13's Open MPI loads.
void keep_ignored_signals();

// Handles SIGINT, SIGTERM, SIGHUP (which counts as SIGTERM), SIGUSR1, SIGUSR2, and SIGPIPE until the process ends. The
// last four stay ignored if they were ignored at the start (nohup). A launcher, a scheduler, and a terminal may all
// signal the same process, in any order, so repeated signals change nothing. Only a second SIGINT, at least a second
// after the first, ends the process at once.
class StopSignals {
 public:
  // Make only one. Before train(), the first signal ends the process, because there is nothing to save yet.
  StopSignals();

  // Trains, and lets signals stop the trainer meanwhile. If the training was stopped, later signals are ignored, such
  // as signals that other ranks got earlier.
  TrainingResult train(Trainer& trainer);
  // The exit status. If the training was stopped: 128 + the first signal, or 128 + SIGTERM if another rank got it.
  // Otherwise 0, or 128 + SIGPIPE if nobody reads the output any more.
  int status() const;

 private:
  void finish(bool stopped);

  bool stopped_ = false;
};

}  // namespace lockstep::app
