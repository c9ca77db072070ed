! Checkpoints from Fortran: a program that goes on where the newest checkpoint left it.
!
! usage: restart_fortran FOLDER STEPS
!
! Compile it against an installed gpufetch:
!   gfortran -O2 restart.f90 -o restart_fortran $(pkg-config --libs gpufetch hdf5)
!
! The module has the part of gpufetch/checkpoint.h that the program needs. A Fortran array u(nx, ny)
! is one of shape (ny, nx) to C, HDF5 and Python, which count the other way round.
module gpufetch
  use, intrinsic :: iso_c_binding
  implicit none

  integer(c_int), parameter :: GPUF_OK = 0, GPUF_DTYPE_FLOAT64 = 13
  integer(c_intptr_t), parameter :: GPUF_STREAM_NONE = 0

  type, bind(c) :: gpuf_device
    integer(c_int) :: kind = 0 ! the CPU
    integer(c_int32_t) :: index = 0
  end type

  type, bind(c) :: gpuf_error
    integer(c_int) :: status
    integer(c_int64_t) :: native_code
    character(kind=c_char) :: message(1024)
  end type

  type, bind(c) :: gpuf_tensor
    type(c_ptr) :: data
    type(gpuf_device) :: device
    integer(c_int) :: dtype
    integer(c_int32_t) :: ndim
    integer(c_int64_t) :: shape(32), strides_nbytes(32)
    integer(c_intptr_t) :: stream
  end type

  ! Members that are left out at the end have their defaults.
  type, bind(c) :: gpuf_checkpoint_options
    integer(c_size_t) :: struct_nbytes
    type(c_ptr) :: directory, prefix
    type(gpuf_device) :: device
    integer(c_size_t) :: state_nbytes = 0, device_max_nbytes = 0, host_max_nbytes = 0
    integer(c_int32_t) :: keep_count = 0, thread_count = 0
    integer(c_int) :: mode = 0
    logical(c_bool) :: uncompressed = .false., unsynced = .false., replace = .false., &
                       skip_if_busy = .false.
  end type

  interface
    integer(c_int) function H5open() bind(c, name="H5open")
      import
    end function
    integer(c_int) function gpuf_tensor_init(tensor, data, device, dtype, ndim, shape, err) &
        bind(c, name="gpuf_tensor_init")
      import
      type(gpuf_tensor), intent(out) :: tensor
      type(c_ptr), value :: data
      type(gpuf_device), value :: device
      integer(c_int), value :: dtype
      integer(c_int32_t), value :: ndim
      integer(c_int64_t), intent(in) :: shape(*)
      type(gpuf_error), intent(out) :: err
    end function
    integer(c_int) function gpuf_checkpoint_open(options, checkpoint, report, err) &
        bind(c, name="gpuf_checkpoint_open")
      import
      type(gpuf_checkpoint_options), intent(in) :: options
      type(c_ptr), intent(out) :: checkpoint
      type(c_ptr), value :: report
      type(gpuf_error), intent(out) :: err
    end function
    integer(c_int) function gpuf_checkpoint_begin(checkpoint, step, report, err) &
        bind(c, name="gpuf_checkpoint_begin")
      import
      type(c_ptr), value :: checkpoint, report
      integer(c_int64_t), value :: step
      type(gpuf_error), intent(out) :: err
    end function
    integer(c_int) function gpuf_checkpoint_add(checkpoint, name, tensor, part, err) &
        bind(c, name="gpuf_checkpoint_add")
      import
      type(c_ptr), value :: checkpoint, part
      character(kind=c_char), intent(in) :: name(*)
      type(gpuf_tensor), intent(in) :: tensor
      type(gpuf_error), intent(out) :: err
    end function
    integer(c_int) function gpuf_checkpoint_add_int64(checkpoint, name, value, err) &
        bind(c, name="gpuf_checkpoint_add_int64")
      import
      type(c_ptr), value :: checkpoint
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: value
      type(gpuf_error), intent(out) :: err
    end function
    integer(c_int) function gpuf_checkpoint_commit(checkpoint, stream, err) &
        bind(c, name="gpuf_checkpoint_commit")
      import
      type(c_ptr), value :: checkpoint
      integer(c_intptr_t), value :: stream
      type(gpuf_error), intent(out) :: err
    end function
    integer(c_int) function gpuf_checkpoint_close(checkpoint, report, err) &
        bind(c, name="gpuf_checkpoint_close")
      import
      type(c_ptr), value :: checkpoint, report
      type(gpuf_error), intent(out) :: err
    end function
    integer(c_int) function gpuf_restart_open(directory, prefix, step_max, restart, report, err) &
        bind(c, name="gpuf_restart_open")
      import
      character(kind=c_char), intent(in) :: directory(*), prefix(*)
      integer(c_int64_t), value :: step_max
      type(c_ptr), intent(out) :: restart
      type(c_ptr), value :: report
      type(gpuf_error), intent(out) :: err
    end function
    integer(c_int) function gpuf_restart_read(restart, name, tensor, part, err) &
        bind(c, name="gpuf_restart_read")
      import
      type(c_ptr), value :: restart, part
      character(kind=c_char), intent(in) :: name(*)
      type(gpuf_tensor), intent(in) :: tensor
      type(gpuf_error), intent(out) :: err
    end function
    integer(c_int) function gpuf_restart_get_int64(restart, name, value, err) &
        bind(c, name="gpuf_restart_get_int64")
      import
      type(c_ptr), value :: restart
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), intent(out) :: value
      type(gpuf_error), intent(out) :: err
    end function
    subroutine gpuf_restart_close(restart) bind(c, name="gpuf_restart_close")
      import
      type(c_ptr), value :: restart
    end subroutine
  end interface
end module

program restart_fortran
  use, intrinsic :: iso_fortran_env, only: error_unit
  use gpufetch
  implicit none

  type(gpuf_error) :: err
  type(gpuf_tensor) :: tensor
  type(gpuf_checkpoint_options) :: options
  type(c_ptr) :: checkpoint, restart
  real(c_double), target :: position(1000)
  character(kind=c_char, len=:), allocatable, target :: folder
  character(kind=c_char, len=5), target :: prefix = "walk" // c_null_char
  character(len=1024) :: argument
  integer(c_int64_t) :: step, steps
  integer :: i

  if (command_argument_count() /= 2) then
    write (error_unit, "(a)") "restart_fortran: usage: restart_fortran FOLDER STEPS"
    stop 1
  end if
  call get_command_argument(1, argument)
  folder = trim(argument) // c_null_char
  call get_command_argument(2, argument)
  read (argument, *) steps

  position = 0
  step = 0
  if (H5open() < 0) stop 1 ! so that libhdf5 is linked, with which gpufetch writes
  call check(gpuf_tensor_init(tensor, c_loc(position), gpuf_device(), GPUF_DTYPE_FLOAT64, 1, &
                              [size(position, kind=c_int64_t)], err))
  options%struct_nbytes = c_sizeof(options)
  options%directory = c_loc(folder)
  options%prefix = c_loc(prefix)
  options%keep_count = 2
  call check(gpuf_checkpoint_open(options, checkpoint, c_null_ptr, err))

  call check(gpuf_restart_open(folder, prefix, -1_c_int64_t, restart, c_null_ptr, err))
  if (c_associated(restart)) then ! there is a checkpoint: go on behind it
    call check(gpuf_restart_read(restart, "position" // c_null_char, tensor, c_null_ptr, err))
    call check(gpuf_restart_get_int64(restart, "step" // c_null_char, step, err))
    call gpuf_restart_close(restart)
  end if
  print "(a, i0)", "from step ", step

  do while (step < steps)
    step = step + 1
    do i = 1, size(position)
      position(i) = position(i) + real(i - 1, c_double) / real(step, c_double)
    end do
    if (mod(step, 10_c_int64_t) == 0) then ! a thread writes it while the program goes on
      call check(gpuf_checkpoint_begin(checkpoint, step, c_null_ptr, err))
      call check(gpuf_checkpoint_add(checkpoint, "position" // c_null_char, tensor, c_null_ptr, err))
      call check(gpuf_checkpoint_add_int64(checkpoint, "step" // c_null_char, step, err))
      call check(gpuf_checkpoint_commit(checkpoint, GPUF_STREAM_NONE, err))
    end if
  end do
  call check(gpuf_checkpoint_close(checkpoint, c_null_ptr, err))

contains

  subroutine check(status)
    integer(c_int), intent(in) :: status
    integer :: length
    if (status == GPUF_OK) return
    length = 0
    do while (err%message(length + 1) /= c_null_char)
      length = length + 1
    end do
    write (error_unit, "(1025a)") "restart_fortran: ", err%message(1:length)
    stop 1
  end subroutine
end program
