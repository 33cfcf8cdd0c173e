// Ranks over MPI: the group of a C++ trainer. Link cairn::mpi for it.
//
//   MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
//   {
//     auto group = cairn::mpi_group(MPI_COMM_WORLD);
//     cairn::save(state, "run/step-1000", {.group = group.get()});
//   }                                          // before MPI_Finalize
//   MPI_Finalize();
//
// The group talks over a communicator of its own, so its messages never meet the trainer's. It never waits
// inside MPI: every transfer is started, then asked about until it is done or the deadline has passed.
#pragma once

#include <mpi.h>

#include <chrono>
#include <memory>

#include "cairn/group.h"

namespace cairn {

// Collective over `world`. Error(kTimeout) when not all ranks come before the deadline; kInvalidArgument when
// MPI is not running. With less than MPI_THREAD_MULTIPLE, only the thread that may call MPI may use the
// group, and no other call of MPI may run at the same time.
std::unique_ptr<Group> mpi_group(MPI_Comm world,
                                 std::chrono::nanoseconds patience = std::chrono::minutes(10));

}  // namespace cairn
